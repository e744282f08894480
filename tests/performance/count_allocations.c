// Preloaded into a process: counts allocations by threads that do not hold Python's lock while counting is on. A step of
// the core runs without the lock, so what it allocates is counted and what Python allocates around it is not. glibc.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static int (*holds_lock)(void);
static atomic_int is_counting;
static atomic_long num_allocations;

static void count(void) {
  if (atomic_load(&is_counting) && !holds_lock()) atomic_fetch_add(&num_allocations, 1);
}

void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* memory, size_t size) {
  count();
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == NULL ? 12 : 0;  // ENOMEM
}

// Returns -1 if this process has no Python.
int start_counting(void) {
  holds_lock = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
  if (holds_lock == NULL) return -1;
  atomic_store(&num_allocations, 0);
  atomic_store(&is_counting, 1);
  return 0;
}

long stop_counting(void) {
  atomic_store(&is_counting, 0);
  return atomic_load(&num_allocations);
}
