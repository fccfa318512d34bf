// Compiling one plain loop for several instruction sets, chosen when the library is loaded.
//
// A leaf function marked QUASIRNN_CLONES is compiled three times and the loader picks the best one for the CPU at hand.
// Clones are not inherited: everything a leaf calls must be QUASIRNN_INLINE, and a lambda inside it is compiled plainly.
#pragma once

#if defined(__GNUC__) && defined(__x86_64__) && defined(__ELF__) && !defined(QUASIRNN_SANITIZE)
#define QUASIRNN_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define QUASIRNN_CLONES
#endif

#if defined(__GNUC__)
#define QUASIRNN_INLINE inline __attribute__((always_inline))
#else
#define QUASIRNN_INLINE inline
#endif

// The rows handed to a leaf either do not overlap or are the same row, read and written at the same index.
#if defined(__clang__)
#define QUASIRNN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define QUASIRNN_INDEPENDENT _Pragma("GCC ivdep")
#else
#define QUASIRNN_INDEPENDENT
#endif
