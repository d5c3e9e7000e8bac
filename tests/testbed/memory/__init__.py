"""What a real vLLM for the CPU holds and how it divides its KV cache.

checkpoints   tiny checkpoints of several architectures, written from what onecat describes
specs         the engine's records of what layers keep, from an architecture
ask           program: runs in the engine's own Python and answers for models and for made-up layers
"""
