"""The failures that people really meet, rebuilt from tiny models, each with its right verdict.

``pairs`` makes the models, ``engines`` the faults that no option of the plugin can make, ``cases``
is the table, ``sessions`` runs one case as a session and reads its report. ``benchmarks/museum.py``
runs the same table under several releases of mlx-lm.

Not there yet, since the plugin has no feature that could judge them:

* second-turn: a prompt cache kept for another turn (a check of reuse);
* gemma4_text with shared caches and a caller's own prompt_cache (the same check);
* max-kv-size and kv-bits: decoding options that reach one path only.
"""
