"""What vLLM's Python decides on a GPU that is not there.

Programs of this folder run in the interpreter of the native vLLM for the CPU, with another source tree of vLLM first
on its path and a CUDA platform of a chosen compute capability (`fake_cuda`): nothing is launched, every decision is
vLLM's own.

fake_cuda         the platform, the driver, Triton's driver, the probes of the extensions
programs          starts the programs below and reads their answers
ask               program: answers all of `questions`
import_modules    program: imports modules
compile_kernels   program: compiles Triton kernels for a compute capability, through vLLM's own wrappers
table             what is expected on 7.0, per question
"""
