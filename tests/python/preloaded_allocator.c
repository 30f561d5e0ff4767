/* An allocator for LD_PRELOAD whose memory is no other one's, as jemalloc's is: it gives out one piece after another of
 * 256 MB, and takes none back. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

static char room[1 << 28]; /* of zeros */
static size_t used;

static void* take(size_t alignment, size_t bytes) {
  const size_t header = sizeof bytes; /* the size, for realloc() */
  if (alignment < 16) alignment = 16;
  const size_t whole = header + alignment + bytes;
  /* Relaxed: each piece is another one, and has no contents to be ordered. */
  const size_t start = bytes > sizeof room ? sizeof room : __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
  if (start > sizeof room || whole > sizeof room - start) {
    errno = ENOMEM;
    return NULL;
  }
  char* piece = room + start + header;
  piece += (alignment - (size_t)piece % alignment) % alignment;
  memcpy(piece - header, &bytes, header);
  return piece;
}

void free(void* memory) { (void)memory; }
void* malloc(size_t bytes) { return take(16, bytes); }
void* memalign(size_t alignment, size_t bytes) { return take(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return take(alignment, bytes); }

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = take(alignment, bytes);
  return *memory == NULL ? ENOMEM : 0;
}

void* calloc(size_t count, size_t size) {
  size_t bytes = 0;
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : take(16, bytes);
}

void* realloc(void* memory, size_t bytes) {
  size_t before = 0;
  void* grown = take(16, bytes);
  if (memory == NULL || grown == NULL) return grown;
  memcpy(&before, (char*)memory - sizeof before, sizeof before);
  return memcpy(grown, memory, before < bytes ? before : bytes);
}
