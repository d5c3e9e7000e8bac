// Runs the thread blocks of a kernel on one thread of the host, each thread of a block with a stack of its own, switched
// where threads meet.
//
// Of the threads that can go on, the first in a given order always does, as far as the next meeting. What threads do
// between two meetings must not depend on each other, so a kernel gives the same bits in every order; in one order and
// its reverse, each of two threads is ahead of the other once.
//
// Blocks run one after the other, or some at a time: then, wherever a block passes a barrier or counts where others
// do, chance decides which of them goes on.

#pragma once

#include "cuda_fp16.h"

namespace host_cuda {

constexpr unsigned int WARP = 32;
constexpr unsigned int MOST_THREADS = 1024;
constexpr unsigned int MOST_RESIDENT = 4;

// How a kernel is started.
struct Launch {
  unsigned int blocks;
  unsigned int width;                // of the grid: blocks are counted along x, then along y, then along z
  unsigned int height;
  unsigned int threads;
  unsigned int resident;             // blocks that run at a time
  unsigned int chance;               // which of them goes on: the start of a sequence of numbers
  unsigned int dynamic_bytes;        // of dynamic shared memory for each block, a multiple of 16
  const unsigned int* block_order;   // a permutation of the blocks
  const unsigned int* thread_order;  // a permutation of a block's threads
};

// What a lane brings to an instruction that all lanes of a warp do together.
struct Operands {
  float* sums;
  const unsigned int* a;
  const unsigned int* b;
};

using Instruction = void (*)(const Operands (&lanes)[WARP]);

// Waits for the other lanes of the warp to come to the same instruction; the last one does it for all.
void meet_lanes(Instruction instruction, const Operands& mine);

// The dynamic shared memory of the block that runs, between forbidden pages.
void* dynamic_shared_memory();

// Lets another of the blocks that run at this time go on, perhaps.
void let_others_go_on();

// Runs `thread(argument)` once for each thread; before each block all shared memory is filled with NaN. Returns what went
// wrong, or null: a read or write outside of memory (guarded_memory.h), undefined behaviour that the compiler traps,
// lanes of a warp at different instructions, threads that wait for others that wait elsewhere or ended, a write in front
// of dynamic shared memory.
const char* run(const Launch& launch, void (*thread)(const void*), const void* argument);

}  // namespace host_cuda
