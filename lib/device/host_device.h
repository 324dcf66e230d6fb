// The one definition that both compilers see.
#pragma once

#ifdef __CUDACC__
#define VOLPIPE_HD __host__ __device__
#else
#define VOLPIPE_HD
#endif
