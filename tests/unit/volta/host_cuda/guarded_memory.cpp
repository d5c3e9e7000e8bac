#include "guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

constexpr unsigned char FILLING = 0xff;

std::size_t page() { return sysconf(_SC_PAGESIZE); }

// Bytes of the whole pages that hold `bytes`: one page at least.
std::size_t whole_pages(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + page() - 1) / page() * page(); }

// The first of the pages that hold the memory, wherever in them it lies: it fills them but for less than a page.
unsigned char* first_page(const unsigned char* memory) {
  return reinterpret_cast<unsigned char*>(reinterpret_cast<std::uintptr_t>(memory) / page() * page());
}

}  // namespace

unsigned char* guarded_allocate(std::size_t bytes, int at_end) {
  const std::size_t inside = whole_pages(bytes);
  void* all = mmap(nullptr, inside + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) {
    return nullptr;
  }
  unsigned char* begin = static_cast<unsigned char*>(all) + page();
  if (mprotect(begin, inside, PROT_READ | PROT_WRITE) != 0) {
    munmap(all, inside + 2 * page());
    return nullptr;
  }
  std::memset(begin, FILLING, inside);
  return at_end ? begin + inside - std::max<std::size_t>(bytes, 1) : begin;
}

void guarded_protect(unsigned char* memory, std::size_t bytes) {
  mprotect(first_page(memory), whole_pages(bytes), PROT_READ);
}

int guarded_is_intact(const unsigned char* memory, std::size_t bytes) {
  const unsigned char* begin = first_page(memory);
  const unsigned char* end = begin + whole_pages(bytes);
  const auto filling = [](unsigned char byte) { return byte == FILLING; };
  return std::all_of(begin, static_cast<const unsigned char*>(memory), filling) &&
         std::all_of(memory + bytes, end, filling);
}

void guarded_free(unsigned char* memory, std::size_t bytes) {
  munmap(first_page(memory) - page(), whole_pages(bytes) + 2 * page());
}
