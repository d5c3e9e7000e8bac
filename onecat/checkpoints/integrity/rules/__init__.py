"""Rules about model directories, one theme a file; registry.py finds them."""
