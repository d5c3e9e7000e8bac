"""NVFP4 and FP8 checkpoints: made from plain ones, turned back, imported from flat files, merged with adapters.

In: a checkpoint's directory. Out: another one, written tensor by tensor, whole or not at all; an interrupted run goes
on where it was. Nothing here needs a GPU or torch.
"""
