"""One file for each way to write a quantised checkpoint: how its configuration is read, and where its tensors lie."""
