// Memory for torch.cuda.memory.CUDAPluggableAllocator: each allocation lies between two zones of a known pattern, right
// after its last byte too, and is filled with the same pattern, which is NaN in fp16 and fp32. So reads past the end and
// results that are never written show as NaN, and writes past either end are found when the memory is freed or looked at.
//
// Plain host code over the driver's functions, so that g++ alone makes it: g++ -shared -fPIC -std=c++17 ... -ldl

#include <dlfcn.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace {

constexpr std::size_t ZONE = 1 << 16;
constexpr unsigned char PATTERN = 0xff;

using Address = unsigned long long;

template <class Function>
Function* driver_function(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "guard_allocator: the driver has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

void check(int result, const char* what) {
  if (result != 0) {
    std::fprintf(stderr, "guard_allocator: %s failed with %d\n", what, result);
    std::abort();
  }
}

struct Allocation {
  std::size_t bytes;
};

std::mutex mutex;
std::map<Address, Allocation> live;  // by the address that torch has
long long broken = 0;

void zone_is_whole(Address address, Address owner, std::size_t bytes, const char* which) {
  std::vector<unsigned char> seen(ZONE);
  check(driver_function<int(void*, Address, std::size_t)>("cuMemcpyDtoH_v2")(seen.data(), address, ZONE), "reading");
  for (std::size_t i = 0; i < ZONE; ++i) {
    if (seen[i] != PATTERN) {
      std::fprintf(stderr, "guard_allocator: the zone %s %zu bytes at %llx was written to at byte %zu\n", which, bytes,
                   owner, i);
      ++broken;
      return;
    }
  }
}

void look_at(Address address, const Allocation& allocation) {
  zone_is_whole(address - ZONE, address, allocation.bytes, "before");
  zone_is_whole(address + allocation.bytes, address, allocation.bytes, "after");
}

void wait() { check(driver_function<int()>("cuCtxSynchronize")(), "waiting"); }

}  // namespace

extern "C" {

void* guarded_allocate(ssize_t size, int, void*) {
  const std::lock_guard<std::mutex> lock(mutex);
  Address start = 0;
  const std::size_t bytes = static_cast<std::size_t>(size);
  check(driver_function<int(Address*, std::size_t)>("cuMemAlloc_v2")(&start, bytes + 2 * ZONE), "allocating");
  check(driver_function<int(Address, unsigned char, std::size_t)>("cuMemsetD8_v2")(start, PATTERN, bytes + 2 * ZONE),
        "filling");
  // The fill is on the legacy stream, which others need not wait for.
  wait();
  live[start + ZONE] = {bytes};
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(start + ZONE));
}

void guarded_free(void* pointer, ssize_t, int, void*) {
  const std::lock_guard<std::mutex> lock(mutex);
  const Address address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto found = live.find(address);
  if (found == live.end()) {
    std::fprintf(stderr, "guard_allocator: %llx was freed and never allocated\n", address);
    ++broken;
    return;
  }
  wait();
  look_at(address, found->second);
  check(driver_function<int(Address)>("cuMemFree_v2")(address - ZONE), "freeing");
  live.erase(found);
}

// Zones that were written to so far, those of memory that is still in use among them.
long long guarded_broken() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!live.empty()) {
    wait();
    for (const auto& [address, allocation] : live) {
      look_at(address, allocation);
    }
  }
  return broken;
}

long long guarded_live() {
  const std::lock_guard<std::mutex> lock(mutex);
  return static_cast<long long>(live.size());
}
}
