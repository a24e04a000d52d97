/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Differences between architectures: the numbers of system calls, and the places of a
 * system call's number, arguments and caller in the saved registers. Only this file
 * depends on the architecture; build.sh builds an object for each.
 *
 * Numbers: arch/x86/entry/syscalls/syscall_64.tbl, and for arm64
 * include/uapi/asm-generic/unistd.h. A call that an architecture lacks has no name.
 */
#pragma once
#include "kernel.h"

#if defined(__TARGET_ARCH_x86)

#define NR_WRITE 1
#define NR_OPEN 2
#define NR_CLOSE 3
#define NR_STAT 4
#define NR_LSTAT 6
#define NR_RT_SIGPROCMASK 14
#define NR_PWRITE64 18
#define NR_ACCESS 21
#define NR_CLONE 56
#define NR_FORK 57
#define NR_VFORK 58
#define NR_EXECVE 59
#define NR_FCNTL 72
#define NR_OPENAT 257
#define NR_NEWFSTATAT 262
#define NR_FACCESSAT 269
#define NR_EXECVEAT 322
#define NR_STATX 332

/* A new memory's faults come with the exception's error code (exceptions:page_fault_user). */
#define HAS_PAGE_FAULT_USER 1

struct pt_regs {
	unsigned long bp;
	unsigned long ax;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
} RELOCATED;

#define nr_of(regs) ((u32)(regs)->orig_ax)
/* Whether a thread is in a system call, of another thread: entry_SYSCALL_64 puts -ENOSYS
 * where the result will be. */
#define is_in_call(regs, sleeps) ((s64)(regs)->ax == -38)
#define argument1(regs) ((regs)->di)
#define argument2(regs) ((regs)->si)
#define argument3(regs) ((regs)->dx)
#define ip_of(regs) ((regs)->ip)
#define sp_of(regs) ((regs)->sp)
#define fp_of(regs) ((regs)->bp)
#define lr_of(regs) 0ull
/* __USER32_CS: a 32-bit system call. Its numbers mean other calls. */
#define is_compat(regs) ((regs)->cs == 0x23)
/* An exception: asm_exc_page_fault() leaves no system call's number behind. */
#define in_exception(regs) ((regs)->orig_ax == ~0ul)

#elif defined(__TARGET_ARCH_arm64)

#define NR_FCNTL 25
#define NR_FACCESSAT 48
#define NR_OPENAT 56
#define NR_CLOSE 57
#define NR_WRITE 64
#define NR_PWRITE64 68
#define NR_NEWFSTATAT 79
#define NR_RT_SIGPROCMASK 135
#define NR_CLONE 220
#define NR_EXECVE 221
#define NR_EXECVEAT 281
#define NR_STATX 291

struct pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
	u64 orig_x0;
	s32 syscallno;
} RELOCATED;

#define nr_of(regs) ((u32)(regs)->syscallno)
/* Nothing in the registers tells. */
#define is_in_call(regs, sleeps) (sleeps)
/* x0 is the result by the time a system call is over. */
#define argument1(regs) ((regs)->orig_x0)
#define argument2(regs) ((regs)->regs[1])
#define argument3(regs) ((regs)->regs[2])
#define ip_of(regs) ((regs)->pc)
#define sp_of(regs) ((regs)->sp)
#define fp_of(regs) ((regs)->regs[29])
#define lr_of(regs) ((regs)->regs[30])
/* PSR_MODE32_BIT */
#define is_compat(regs) (((regs)->pstate & 0x10) != 0)

#else
#error "build.sh names the architecture: __TARGET_ARCH_x86 or __TARGET_ARCH_arm64"
#endif

/* The same everywhere: calls younger than Linux 5.0. */
#define NR_CLONE3 435
#define NR_OPENAT2 437
#define NR_FACCESSAT2 439

/* 32-bit programs. i386 and 32-bit ARM have the same numbers. */
#define NR32_FORK 2
#define NR32_EXECVE 11
#define NR32_CLONE 120
#define NR32_VFORK 190
