"""Command line, ini, gates file and markers, turned into one frozen, validated Plan."""
