# Builds libds_cuda.so. nvcc compiles the device code to fat binaries inside it; the C++ compiler compiles the host
# code. The driver and all libraries are opened at run time, so no CUDA library is linked.
unset(DS_CUDA_KEPT CACHE)
find_program(DS_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin
             ${CMAKE_SOURCE_DIR}/.cache/cuda/bin)
if(NOT DS_NVCC)
  message(STATUS "device cuda is left out: no nvcc is installed")
  return()
endif()
if(DS_SANITIZE)
  return()
endif()
get_filename_component(DS_CUDA_ROOT ${DS_NVCC} REALPATH)
get_filename_component(DS_CUDA_ROOT ${DS_CUDA_ROOT}/../.. ABSOLUTE)
if(NOT EXISTS ${DS_CUDA_ROOT}/include/cuda.h)
  message(STATUS "device cuda is left out: ${DS_CUDA_ROOT}/include has no cuda.h")
  return()
endif()

set(DS_CUDA_ROOT ${DS_CUDA_ROOT} CACHE INTERNAL "The toolkit")
# In toolkits from PyPI, the headers that these headers include are in a separate folder.
set(DS_CUDA_INCLUDES ${DS_CUDA_ROOT}/include ${DS_CUDA_ROOT}/include/cccl CACHE INTERNAL "Its headers")
set(DS_CUDA_FLAGS -std=c++20 -O3 --expt-relaxed-constexpr -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
    --Werror all-warnings)
# The files whose kernels have the same bits as those of the CPU, and the flags that this requires (see README.md).
set(DS_CUDA_EXACT_FLAGS --fmad=false -prec-div=true -prec-sqrt=true -ftz=false)
set(DS_CUDA_EXACT elementwise lamb quantize step table update)
# The PTX of each file and the assembler's report on its kernels, which tests/cuda/static_test.py reads.
set(DS_CUDA_KEPT ${CMAKE_CURRENT_BINARY_DIR}/kept CACHE INTERNAL "Their folder")
file(MAKE_DIRECTORY ${DS_CUDA_KEPT})
file(GLOB DS_CUDA_DEVICE CONFIGURE_DEPENDS *.cu)
set(assembly "")
set(declarations "")
set(images "")
set(binaries "")
# DS_CUDA_BUILT names this folder in another build of the same sources: its images are used instead of compiling them again.
foreach(source IN LISTS DS_CUDA_DEVICE)
  get_filename_component(name ${source} NAME_WE)
  set(binary ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  if(DS_CUDA_BUILT)
    set(binary ${DS_CUDA_BUILT}/${name}.fatbin)
  endif()
  set(exact "")
  if(name IN_LIST DS_CUDA_EXACT)
    set(exact ${DS_CUDA_EXACT_FLAGS})
  endif()
  if(NOT DS_CUDA_BUILT)
    add_custom_command(OUTPUT ${binary}
                       BYPRODUCTS ${DS_CUDA_KEPT}/${name}.log ${DS_CUDA_KEPT}/${name}.compute_90.ptx
                       COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/nvcc.sh ${DS_CUDA_KEPT}/${name}.log
                               ${DS_NVCC} -fatbin ${DS_CUDA_FLAGS} ${exact} -Xptxas -v --keep --keep-dir ${DS_CUDA_KEPT}
                               -MD -MF ${binary}.d -o ${binary} ${source}
                       DEPENDS ${source} ${CMAKE_SOURCE_DIR}/cmake/nvcc.sh DEPFILE ${binary}.d VERBATIM)
  endif()
  list(APPEND binaries ${binary})
  string(APPEND assembly ".globl ds_cuda_${name}\n.hidden ds_cuda_${name}\n.balign 64\nds_cuda_${name}:\n.incbin \"${binary}\"\n")
  string(APPEND declarations "extern const unsigned char ds_cuda_${name}[];\n")
  string(APPEND images "ds_cuda_${name}, ")
endforeach()
set(DS_CUDA_IMAGES ${CMAKE_CURRENT_BINARY_DIR}/images.cpp)
# A basic asm statement at file scope, so that no assembler language is needed.
string(REPLACE "\"" "\\\"" assembly "${assembly}")
string(REPLACE "\n" "\\n\"\n    \"" assembly "${assembly}")
file(CONFIGURE OUTPUT ${DS_CUDA_IMAGES} CONTENT "#include <vector>

#include \"kernels/cuda/modules.h\"

__asm__(
    \".section .rodata\\n\"
    \"@assembly@.previous\\n\");
extern \"C\" {
@declarations@}

namespace ds::cuda {

std::span<const void* const> module_images() {
  static const std::vector<const void*> images = {@images@};
  return images;
}

}  // namespace ds::cuda
" @ONLY)
set_source_files_properties(${DS_CUDA_IMAGES} PROPERTIES OBJECT_DEPENDS "${binaries}")

# The plugin compiles the parts of libds that it uses, because libds.so does not export them.
file(GLOB DS_CUDA_HOST CONFIGURE_DEPENDS *.cpp)
add_library(ds_cuda MODULE ${DS_CUDA_HOST} ${DS_CUDA_IMAGES})
foreach(part core/base/attrs core/base/dtype core/base/error core/base/half core/base/utf8 kernels/formulas/cached_attention kernels/matrix_product
        kernels/formulas/rope core/graph/ops/rope_factors core/graph/ops/rope_length)
  target_sources(ds_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src/${part}.cpp)
endforeach()
target_include_directories(ds_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_include_directories(ds_cuda SYSTEM PRIVATE ${DS_CUDA_INCLUDES})
target_link_libraries(ds_cuda PRIVATE ds_options fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(ds_cuda PRIVATE -Wl,--no-undefined)
