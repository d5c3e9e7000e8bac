// Memory between pages that may not be touched.

#pragma once

#include <cstddef>

extern "C" {

// `bytes` of memory, right before the forbidden page behind it, or right after the one in front of it. All bytes, those
// that fill up the last page too, are 0xff: NaN in every number format. Null where the machine has no memory.
unsigned char* guarded_allocate(std::size_t bytes, int at_end);

// Makes the memory read-only.
void guarded_protect(unsigned char* memory, std::size_t bytes);

// Whether the bytes that fill up the last page are as they were.
int guarded_is_intact(const unsigned char* memory, std::size_t bytes);

void guarded_free(unsigned char* memory, std::size_t bytes);

}  // extern "C"
