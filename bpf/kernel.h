/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel's types, as far as we read them. Members are relocated by name when
 * the object is loaded (preserve_access_index), so order and gaps mean nothing and
 * one object serves every kernel that has BTF. A name that changed between kernels
 * is given as a second "flavour" (suffix after three underscores).
 */
#pragma once
#include "helpers.h"

#define RELOCATED __attribute__((preserve_access_index))

typedef struct {
	int counter;
} RELOCATED atomic_t;

typedef struct {
	long counter;
} RELOCATED atomic_long_t;

struct percpu_counter {
	s64 count;
} RELOCATED;

/* enum of include/linux/mm_types_task.h, unchanged since 4.5 */
enum { RSS_FILE = 0, RSS_ANON = 1, RSS_SWAP = 2, RSS_SHMEM = 3 };

struct mm_struct {
	atomic_long_t pgtables_bytes;
	atomic_long_t hugetlb_usage;
	unsigned long start_code;
	unsigned long end_code;
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long env_end;
	struct percpu_counter rss_stat[4];
} RELOCATED;

/* Before Linux 6.2 (commit f1a7941243c1) the counters were plain atomics. */
struct mm_rss_stat___before62 {
	atomic_long_t count[4];
} RELOCATED;

struct mm_struct___before62 {
	struct mm_rss_stat___before62 rss_stat;
} RELOCATED;

typedef struct {
	unsigned long sig[1];
} RELOCATED sigset_t;

struct inode {
	unsigned short i_mode;
	unsigned int i_rdev;
} RELOCATED;

struct file {
	unsigned int f_flags;
	struct inode *f_inode;
} RELOCATED;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} RELOCATED;

struct files_struct {
	struct fdtable *fdt;
} RELOCATED;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
} RELOCATED;

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	int exit_code;
	int exit_signal;
	struct mm_struct *mm;
	struct files_struct *files;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	sigset_t blocked;
	char comm[16];
} RELOCATED;

struct bio {
	unsigned int bi_opf;
} RELOCATED;

struct linux_binprm {
	const char *filename;
} RELOCATED;

/* linux/sched.h */
#define CLONE_VM 0x00000100ull
#define CLONE_VFORK 0x00004000ull
#define CLONE_THREAD 0x00010000ull
