// Included first when clang++ compiles against an ITK that was configured for GCC alone (Debian's): its detection of
// compilers takes clang for a GCC 12, whose features it has.
#pragma once

#pragma push_macro("__clang__")
#pragma push_macro("__GNUC__")
#undef __clang__
#undef __GNUC__
#define __GNUC__ 12
#include <itk_compiler_detection.h>
#pragma pop_macro("__GNUC__")
#pragma pop_macro("__clang__")
