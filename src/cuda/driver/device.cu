#include "cuda/driver/device.h"

#include <cuda_runtime_api.h>

namespace paceline {
namespace {

Status failure(const std::string& what, cudaError_t error) {
  return Status(Code::cuda, what + ": " + cudaGetErrorString(error));
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

bool built_with_cuda() { return true; }

std::string cuda_runtime_version() { return version_text(CUDART_VERSION); }

Result<int> device_count() {
  int driver = 0;
  if (cudaError_t error = cudaDriverGetVersion(&driver); error != cudaSuccess)
    return failure("the version of the CUDA driver cannot be read", error);
  if (driver == 0) return 0;  // no driver on this machine

  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count;
  (void)cudaGetLastError();  // the runtime keeps it; a later call of the user's would find it
  if (error == cudaErrorNoDevice) return 0;
  if (error == cudaErrorInsufficientDriver)
    return Status(Code::cuda, "the NVIDIA driver serves CUDA " + version_text(driver) + ", Paceline needs " +
                                  cuda_runtime_version() + ": install a newer driver");
  return failure("the GPUs cannot be counted", error);
}

Result<Device> device(int number) {
  Result<int> count = device_count();
  if (!count.ok()) return count.status();
  if (number < 0 || number >= *count)
    return Status(Code::invalid_argument,
                  "there is no GPU " + std::to_string(number) + ": this machine shows " + std::to_string(*count));
  cudaDeviceProp properties{};
  if (cudaError_t error = cudaGetDeviceProperties(&properties, number); error != cudaSuccess) {
    (void)cudaGetLastError();
    return failure("the properties of GPU " + std::to_string(number) + " cannot be read", error);
  }
  return Device{.number = number,
                .name = properties.name,
                .memory_bytes = properties.totalGlobalMem,
                .compute_major = properties.major,
                .compute_minor = properties.minor,
                .multiprocessors = properties.multiProcessorCount};
}

Result<int> current_device() {
  int number = 0;
  const cudaError_t error = cudaGetDevice(&number);
  if (error == cudaSuccess) return number;
  (void)cudaGetLastError();
  return failure("the current GPU cannot be told", error);
}

Status use_device(int number) {
  Result<Device> found = device(number);
  PACE_TRY(found.status());
  cudaError_t error = cudaSetDevice(number);
  if (error == cudaSuccess) error = cudaFree(nullptr);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failure("GPU " + std::to_string(number) + " cannot be used", error);
}

}  // namespace paceline
