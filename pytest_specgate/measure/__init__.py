"""Trials in rounds, memory, block counts, and the session's one store of evidence."""
