// The calling thread's CUDA context, through the driver where the process has it: a communicator that is made later, or
// on another thread, is made on the device that was current when the program asked for it. And whose memory a buffer
// is.
#pragma once

namespace paceline::nccl {

class DeviceContext {
 public:
  static DeviceContext current();
  // How many there are; 0 without a driver.
  static int devices();
  // The primary context of a device; none without a driver, or where it has no room for one.
  static DeviceContext of_device(int device);
  // Make it the calling thread's; nothing where it is none.
  void enter() const;
  // Make it the calling thread's again, also where it was none.
  void restore() const;
  // -1: unknown.
  [[nodiscard]] int device() const { return device_; }

 private:
  void* context_ = nullptr;
  int device_ = -1;
};

// Whether the driver knows the memory as a GPU's. The host's is none, pinned memory too.
bool is_gpu_memory(const void* buffer);

}  // namespace paceline::nccl
