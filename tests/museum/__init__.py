"""The failures that people really meet, rebuilt from tiny models, each with its right verdict.

``pairs`` makes the models, ``engines`` the faults that no option of the plugin can make, ``cases``
is the table, ``sessions`` runs one case as a session and reads its report. ``benchmarks/museum.py``
runs the same table under several releases of mlx-lm.
"""
