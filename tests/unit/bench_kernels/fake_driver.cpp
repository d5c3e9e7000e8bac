// The driver's memory functions over the host's memory: what guard_allocator.cpp needs of libcuda.so.1.

#include <cstdlib>
#include <cstring>

extern "C" {
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  *address = reinterpret_cast<unsigned long long>(std::malloc(bytes));
  return *address == 0 ? 2 : 0;
}
int cuMemFree_v2(unsigned long long address) {
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
int cuMemsetD8_v2(unsigned long long address, unsigned char value, std::size_t bytes) {
  std::memset(reinterpret_cast<void*>(address), value, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void* target, unsigned long long address, std::size_t bytes) {
  std::memcpy(target, reinterpret_cast<void*>(address), bytes);
  return 0;
}
int cuCtxSynchronize() { return 0; }
}
