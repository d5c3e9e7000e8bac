"""One module for each family of architectures; the registry loads them all."""
