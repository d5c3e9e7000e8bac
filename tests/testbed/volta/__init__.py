"""What vLLM's Python decides on a GPU that is not there.

Programs of this folder run in the interpreter of the native vLLM for the CPU, with another source tree of vLLM first
on its path and a CUDA platform of a chosen compute capability (`fake_cuda`): nothing is launched, every decision is
vLLM's own.

sources     the trees: the pristine source, the source with our series
programs    starts the programs below and reads their answers
ask         program: answers the rows of `questions`
touch       program: imports modules
compile     program: compiles Triton kernels for a compute capability, through vLLM's own wrappers
"""
