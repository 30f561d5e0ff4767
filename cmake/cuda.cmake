# The CUDA compiler from PyPI (nvidia-cuda-nvcc and its companions, build requirements in pyproject.toml), unless
# -DCMAKE_CUDA_COMPILER names another. No find_package(CUDAToolkit): CMake 3.25 does not know CUDA 13's layout.
if(NOT CMAKE_CUDA_COMPILER)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('nvidia.cu13').submodule_search_locations[0])"
    OUTPUT_VARIABLE cuda_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE cuda_missing)
  if(cuda_missing)
    message(FATAL_ERROR "no CUDA compiler: install nvidia-cuda-nvcc and the other nvidia-* build requirements of "
                        "pyproject.toml for ${Python3_EXECUTABLE}, or build with -DPACELINE_CUDA=OFF")
  endif()
  set(CMAKE_CUDA_COMPILER ${cuda_root}/bin/nvcc)
  set(ENV{NVCC_APPEND_FLAGS} "-L${cuda_root}/lib")  # CMake's compiler check links before it knows this folder
endif()

if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})  # nvcc's default is a `gcc` that a machine need not have
endif()

# Machine code for the GPUs of data centres, PTX for all later ones. Nothing in src/cuda is for compute capability 10
# alone, so its machine code comes from 9.0's PTX, too: a sixth less to compile.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--generate-code=arch=compute_80,code=[sm_80]>"
                      "$<$<COMPILE_LANGUAGE:CUDA>:--generate-code=arch=compute_90,code=[compute_90,sm_90,sm_100]>")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
# Host and device share the constexpr functions that say what lies where.
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra> $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
