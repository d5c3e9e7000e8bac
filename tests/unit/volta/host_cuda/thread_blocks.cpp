#include "thread_blocks.h"

#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "guarded_memory.h"

namespace host_cuda {

namespace {

constexpr std::size_t STACK_BYTES = 64 * 1024;
constexpr unsigned char NAN_BYTE = 0xff;

struct Fiber {
  ucontext_t start;
  jmp_buf registers;
  bool started;
};

// Lanes that wait for the rest of their warp, and at what.
struct Meeting {
  Instruction instruction;
  unsigned int arrived;
  Operands lanes[WARP];
};

// A block that runs, and whose place another one takes when it ends.
struct Block {
  unsigned char* stacks = nullptr;
  Fiber fibers[MOST_THREADS];

  unsigned int number;
  bool runs;
  Meeting warps[MOST_THREADS / WARP];
  unsigned int waiting_at_barrier;
  unsigned int ended;
  // By place in the order of threads; no earlier one than `first_ready` can go on.
  bool ready[MOST_THREADS];
  unsigned int first_ready;
  std::vector<unsigned char> shared;  // while another block runs
  unsigned char* dynamic = nullptr;
};

Block blocks[MOST_RESIDENT];
Block* current;
const Launch* launched;
unsigned int started_blocks;
unsigned int chance;
unsigned int place_of[MOST_THREADS];

void (*thread_body)(const void*);
const void* thread_argument;

jmp_buf scheduler;
sigjmp_buf failure;
char message[200];

template <typename... Values>
[[noreturn]] void fail(const char* format, Values... values) {
  const int length = std::snprintf(message, sizeof(message), "block %u, thread %u: ", current->number, threadIdx.x);
  std::snprintf(message + length, sizeof(message) - length, format, values...);
  siglongjmp(failure, 1);
}

// This library's thread-local variables, which are the kernels' shared ones, for the thread that calls.
struct SharedMemory {
  unsigned char* begin;
  std::size_t bytes;
};

// Thread-local memory is there from its first use on.
thread_local volatile bool touched;

SharedMemory shared_memory() {
  touched = true;
  SharedMemory found{nullptr, 0};
  const auto visit = [](dl_phdr_info* library, std::size_t, void* result) {
    bool mine = false;
    std::size_t bytes = 0;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = library->dlpi_phdr[i];
      const std::size_t offset = reinterpret_cast<std::size_t>(&shared_memory) - library->dlpi_addr - segment.p_vaddr;
      mine = mine || (segment.p_type == PT_LOAD && offset < segment.p_memsz);
      bytes = segment.p_type == PT_TLS ? segment.p_memsz : bytes;
    }
    if (mine) {
      *static_cast<SharedMemory*>(result) = {static_cast<unsigned char*>(library->dlpi_tls_data), bytes};
    }
    return mine ? 1 : 0;
  };
  dl_iterate_phdr(visit, &found);
  return found;
}

void set_ready(unsigned int thread) {
  current->ready[place_of[thread]] = true;
  current->first_ready = std::min(current->first_ready, place_of[thread]);
}

void wait() { current->ready[place_of[threadIdx.x]] = false; }

[[noreturn]] void enter(unsigned int thread) {
  Fiber& fiber = current->fibers[thread];
  threadIdx.x = thread;
  if (!fiber.started) {
    fiber.started = true;
    setcontext(&fiber.start);
  }
  _longjmp(fiber.registers, 1);
}

unsigned int first_ready() {
  unsigned int& place = current->first_ready;
  while (place < launched->threads && !current->ready[place]) {
    ++place;
  }
  if (place == launched->threads) {
    fail("waits for threads that wait elsewhere or ended");
  }
  return launched->thread_order[place];
}

// Lets the first thread of the block that can go on do so; returns when that is this one.
__attribute__((noinline)) void pass_on() {
  const unsigned int next = first_ready();
  if (next != threadIdx.x && _setjmp(current->fibers[threadIdx.x].registers) == 0) {
    enter(next);
  }
}

// A block of which nothing ran yet.
void start(Block& block) {
  block.number = launched->block_order[started_blocks++];
  block.runs = true;
  std::fill(block.warps, block.warps + MOST_THREADS / WARP, Meeting{});
  block.waiting_at_barrier = block.ended = 0;
  std::fill(block.ready, block.ready + launched->threads, true);
  block.first_ready = 0;
  block.shared.assign(shared_memory().bytes, NAN_BYTE);
  std::fill_n(block.dynamic, launched->dynamic_bytes, NAN_BYTE);
}

// Makes a block the one that runs; its shared memory comes to where kernels look for it.
void bring(Block& block) {
  current = &block;
  const unsigned int row = block.number / launched->width;
  blockIdx = {block.number % launched->width, row % launched->height, row / launched->height};
  std::copy(block.shared.begin(), block.shared.end(), shared_memory().begin);
}

Block& any_that_runs() {
  unsigned int number;
  do {
    chance = chance * 1664525u + 1013904223u;
    number = (chance >> 16) % launched->resident;
  } while (!blocks[number].runs);
  return blocks[number];
}

void end_thread() {
  wait();
  if (++current->ended < launched->threads) {
    pass_on();
    return;
  }
  if (!guarded_is_intact(current->dynamic, launched->dynamic_bytes)) {
    fail("the block wrote in front of its dynamic shared memory");
  }
  if (_setjmp(current->fibers[threadIdx.x].registers) != 0) {
    return;
  }
  if (started_blocks < launched->blocks) {
    start(*current);
  } else {
    current->runs = false;
  }
  if (std::none_of(blocks, blocks + launched->resident, [](const Block& block) { return block.runs; })) {
    _longjmp(scheduler, 1);
  }
  bring(any_that_runs());
  enter(first_ready());
}

void fiber_main() {
  for (;;) {
    thread_body(thread_argument);
    end_thread();
  }
}

// Stacks with a page before each that may not be touched.
unsigned char* stack_of(Block& block, unsigned int thread) {
  const std::size_t page = sysconf(_SC_PAGESIZE);
  if (block.stacks == nullptr) {
    void* memory = mmap(nullptr, MOST_THREADS * (STACK_BYTES + page), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::abort();
    }
    block.stacks = static_cast<unsigned char*>(memory);
    for (unsigned int i = 0; i < MOST_THREADS; ++i) {
      mprotect(block.stacks + i * (STACK_BYTES + page), page, PROT_NONE);
    }
  }
  return block.stacks + thread * (STACK_BYTES + page) + page;
}

void make_fiber(Fiber& fiber, unsigned char* stack) {
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = stack;
  fiber.start.uc_stack.ss_size = STACK_BYTES;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, fiber_main, 0);
  fiber.started = false;
}

void on_signal(int signal, siginfo_t* information, void*) {
  if (signal == SIGSEGV || signal == SIGBUS) {
    fail("reads or writes outside of memory, at %p", information->si_addr);
  }
  fail("undefined behaviour (%s)", signal == SIGFPE ? "division" : "trapped by the compiler");
}

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
constexpr int SIGNAL_COUNT = sizeof(SIGNALS) / sizeof(SIGNALS[0]);

// While it lives, signals of faulty kernels come to on_signal, on a stack of their own.
class Handlers {
 public:
  Handlers() {
    static unsigned char memory[64 * 1024];
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = sizeof(memory);
    sigaltstack(&stack, &stack_before_);
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < SIGNAL_COUNT; ++i) {
      sigaction(SIGNALS[i], &action, &before_[i]);
    }
  }

  ~Handlers() {
    for (int i = 0; i < SIGNAL_COUNT; ++i) {
      sigaction(SIGNALS[i], &before_[i], nullptr);
    }
    sigaltstack(&stack_before_, nullptr);
  }

  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

 private:
  stack_t stack_before_;
  struct sigaction before_[SIGNAL_COUNT];
};

// Dynamic shared memory for as many blocks as run at a time.
class DynamicMemory {
 public:
  explicit DynamicMemory(const Launch& launch) : launch_(launch) {
    for (unsigned int number = 0; number < launch.resident; ++number) {
      blocks[number].dynamic = guarded_allocate(launch.dynamic_bytes, 1);
      if (blocks[number].dynamic == nullptr) {
        std::abort();
      }
    }
  }

  ~DynamicMemory() {
    for (unsigned int number = 0; number < launch_.resident; ++number) {
      guarded_free(blocks[number].dynamic, launch_.dynamic_bytes);
    }
  }

  DynamicMemory(const DynamicMemory&) = delete;
  DynamicMemory& operator=(const DynamicMemory&) = delete;

 private:
  const Launch& launch_;
};

void prepare() {
  for (unsigned int place = 0; place < launched->threads; ++place) {
    place_of[launched->thread_order[place]] = place;
  }
  started_blocks = 0;
  for (unsigned int number = 0; number < launched->resident; ++number) {
    Block& block = blocks[number];
    for (unsigned int thread = 0; thread < launched->threads; ++thread) {
      make_fiber(block.fibers[thread], stack_of(block, thread));
    }
    block.runs = false;
    if (started_blocks < launched->blocks) {
      start(block);
    }
  }
}

void run_blocks() {
  if (_setjmp(scheduler) == 0) {
    bring(any_that_runs());
    enter(first_ready());
  }
}

}  // namespace

void meet_lanes(Instruction instruction, const Operands& mine) {
  const unsigned int warp = threadIdx.x / WARP;
  Meeting& meeting = current->warps[warp];
  if (meeting.arrived > 0 && meeting.instruction != instruction) {
    fail("other lanes of the warp are at another instruction");
  }
  meeting.instruction = instruction;
  meeting.lanes[threadIdx.x % WARP] = mine;
  wait();
  if (++meeting.arrived == WARP) {
    meeting.arrived = 0;
    if (instruction != nullptr) {
      instruction(meeting.lanes);
    }
    for (unsigned int lane = 0; lane < WARP; ++lane) {
      set_ready(warp * WARP + lane);
    }
  }
  pass_on();
}

void* dynamic_shared_memory() { return current->dynamic; }

__attribute__((noinline)) void let_others_go_on() {
  Block& next = any_that_runs();
  if (&next != current && _setjmp(current->fibers[threadIdx.x].registers) == 0) {
    const SharedMemory shared = shared_memory();
    std::copy(shared.begin, shared.begin + shared.bytes, current->shared.begin());
    bring(next);
    enter(first_ready());
  }
}

const char* run(const Launch& launch, void (*thread)(const void*), const void* argument) {
  if (launch.threads > MOST_THREADS || launch.resident > MOST_RESIDENT) {
    return "more threads or blocks at a time than there can be here";
  }
  const unsigned int layer = launch.width * launch.height;
  if (launch.blocks % layer != 0 || launch.dynamic_bytes % 16 != 0) {
    return "a grid, or quads of words of shared memory, that are not whole";
  }
  gridDim = {launch.width, launch.height, launch.blocks / layer};
  blockDim = {launch.threads, 1, 1};
  launched = &launch;
  chance = launch.chance;
  thread_body = thread;
  thread_argument = argument;
  const DynamicMemory memory(launch);
  prepare();
  const Handlers handlers;
  if (sigsetjmp(failure, 1) != 0) {
    return message;
  }
  run_blocks();
  return nullptr;
}

}  // namespace host_cuda

void __syncwarp() { host_cuda::meet_lanes(nullptr, {}); }

void __syncthreads() {
  using namespace host_cuda;
  wait();
  if (++current->waiting_at_barrier == blockDim.x) {
    current->waiting_at_barrier = 0;
    for (unsigned int thread = 0; thread < blockDim.x; ++thread) {
      set_ready(thread);
    }
    let_others_go_on();
  }
  pass_on();
}

unsigned int atomicAdd(unsigned int* address, unsigned int value) {
  host_cuda::let_others_go_on();
  const unsigned int before = *address;
  *address += value;
  host_cuda::let_others_go_on();
  return before;
}
