/* A stand-in for libcuda.so.1 on a machine without a GPU: "device" memory is host memory, a stream runs what it is
 * given at once, and a graph runs its calls while they are captured, and nothing when it is launched. Every stream is
 * NULL, so that Paceline takes a call on one for a blocking call on host memory. FAKE_CUDA_DEVICES says how many GPUs
 * there are, FAKE_CUDA_FULL that they have no memory left. With FAKE_CUDA_LEAKS the end of the process tells what was
 * made and not given back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { success = 0, invalid_value = 1, out_of_memory = 2, no_device = 100 };

static int made = 0; /* objects: a runnable graph is made of a graph, which is given back by itself */

static int devices(void) {
  const char* text = getenv("FAKE_CUDA_DEVICES");
  return text ? atoi(text) : 2;
}

__attribute__((destructor)) static void tell_leaks(void) {
  if (getenv("FAKE_CUDA_LEAKS") && made) fprintf(stderr, "fake CUDA driver: %d objects left\n", made);
}

static int make(void** object, size_t bytes) {
  *object = malloc(bytes);
  if (!*object) return out_of_memory;
  ++made;
  return success;
}

static int give_back(void* object) {
  if (!object) return invalid_value;
  --made;
  free(object);
  return success;
}

int cuInit(unsigned flags) { return flags ? invalid_value : devices() ? success : no_device; }
int cuGetErrorString(int result, const char** text) {
  *text = result == no_device ? "no device" : result == out_of_memory ? "out of memory" : "invalid value";
  return success;
}
int cuDeviceGetCount(int* count) {
  *count = devices();
  return *count ? success : no_device;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < devices() ? success : invalid_value;
}
int cuDeviceGetName(char* name, int length, int device) {
  snprintf(name, (size_t)length, "fake GPU %d", device);
  return success;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  (void)device;
  *flags = 0;
  *active = 0;
  return success;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  (void)device;
  return make(context, 1);
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  --made;
  return success;
}
int cuCtxSetCurrent(void* context) {
  (void)context; /* NULL: none */
  return success;
}
int cuCtxGetCurrent(void** context) {
  *context = NULL;
  return success;
}
int cuCtxSynchronize(void) { return success; }

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = (size_t)1 << 36;
  return success;
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  void* memory = NULL;
  if (bytes == 0) return invalid_value;
  if (getenv("FAKE_CUDA_FULL")) return out_of_memory;
  const int result = make(&memory, bytes);
  *address = (uint64_t)(uintptr_t)memory;
  return result;
}
int cuMemFree_v2(uint64_t address) { return give_back((void*)(uintptr_t)address); }
int cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  *address = malloc(bytes); /* to the end of the process */
  return *address && !flags ? success : out_of_memory;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  memcpy((void*)(uintptr_t)to, from, bytes);
  return success;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  memcpy(to, (void*)(uintptr_t)from, bytes);
  if (bytes > 100000 && getenv("FAKE_CUDA_WRONG")) ((char*)to)[bytes / 2] ^= 1;
  return success;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  memcpy((void*)(uintptr_t)to, (void*)(uintptr_t)from, bytes);
  return stream ? invalid_value : success;
}
int cuMemsetD8Async(uint64_t address, unsigned char byte, size_t bytes, void* stream) {
  memset((void*)(uintptr_t)address, byte, bytes);
  return stream ? invalid_value : success;
}

int cuStreamCreate(void** stream, unsigned flags) {
  *stream = NULL;
  return flags == 1 ? success : invalid_value;
}
int cuStreamDestroy_v2(void* stream) { return stream ? invalid_value : success; }
int cuStreamSynchronize(void* stream) { return stream ? invalid_value : success; }
int cuStreamWaitValue32_v2(void* stream, uint64_t address, unsigned value, unsigned flags) {
  (void)value;
  return stream || !address || flags ? invalid_value : success;
}
static int capturing = 0;
int cuStreamBeginCapture_v2(void* stream, int mode) {
  if (stream || mode != 2) return invalid_value;
  ++capturing;
  return success;
}
int cuStreamEndCapture(void* stream, void** graph) {
  if (stream || !capturing) return invalid_value;
  --capturing;
  return make(graph, 1);
}
int cuGraphInstantiateWithFlags(void** runnable, void* graph, unsigned long long flags) {
  return graph && !flags ? make(runnable, 1) : invalid_value;
}
int cuGraphLaunch(void* runnable, void* stream) { return runnable && !stream ? success : invalid_value; }
int cuGraphExecDestroy(void* runnable) { return give_back(runnable); }
int cuGraphDestroy(void* graph) { return give_back(graph); }

int cuEventCreate(void** event, unsigned flags) { return flags ? invalid_value : make(event, sizeof(struct timespec)); }
int cuEventRecord(void* event, void* stream) {
  clock_gettime(CLOCK_MONOTONIC, event);
  return stream ? invalid_value : success;
}
int cuEventSynchronize(void* event) { return event ? success : invalid_value; }
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const struct timespec *first = begin, *last = end;
  *milliseconds =
      (float)((double)(last->tv_sec - first->tv_sec) * 1e3 + (double)(last->tv_nsec - first->tv_nsec) / 1e6);
  return success;
}
int cuEventDestroy_v2(void* event) { return give_back(event); }

/* Modules hold nothing, and kernels do nothing. */
int cuModuleLoadData(void** module, const void* image) {
  *module = &made;
  return image ? success : invalid_value;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return name ? success : invalid_value;
}
int cuLaunchKernelEx(const void* how, void* function, void** parameters, void** extra) {
  return how && function == &made && !parameters && !extra ? success : invalid_value;
}
