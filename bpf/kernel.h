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

typedef struct {
	s64 counter;
} RELOCATED atomic64_t;

struct percpu_counter {
	s64 count;
} RELOCATED;

/* enum of include/linux/mm_types_task.h, unchanged since 4.5 */
enum { RSS_FILE = 0, RSS_ANON = 1, RSS_SWAP = 2, RSS_SHMEM = 3 };

struct rw_semaphore {
	atomic_long_t owner; /* of a writer: its task, with flags in the lowest bits */
} RELOCATED;

struct mm_struct {
	struct rw_semaphore mmap_lock;
	atomic_long_t pgtables_bytes;
	atomic_long_t hugetlb_usage;
	unsigned long start_code;
	unsigned long end_code;
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long env_end;
	unsigned long data_vm;
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

struct rlimit {
	unsigned long rlim_cur;
} RELOCATED;

/* Of include/uapi/asm-generic/resource.h. */
enum { RLIMIT_NPROC = 6 };

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	struct rlimit rlim[16];
} RELOCATED;

typedef struct {
	u32 val;
} RELOCATED kuid_t;

/* A number of 64 bits since Linux 6.3, two of 32 before: the same bytes. */
typedef struct {
	u64 val;
} kernel_cap_t;

/* Since Linux 5.19; UCOUNT_RLIMIT_NPROC is the first of them. */
struct ucounts {
	atomic_long_t rlimit[1];
} RELOCATED;

struct cred {
	kuid_t uid;
	kernel_cap_t cap_effective;
	struct ucounts *ucounts;
} RELOCATED;

struct pid_namespace {
	unsigned int pid_allocated;
} RELOCATED;

/* include/linux/pid_namespace.h: set until the first process of the namespace ends. */
#define PIDNS_ADDING (1u << 31)

struct nsproxy {
	struct pid_namespace *pid_ns_for_children;
} RELOCATED;

struct kernfs_node {
	u64 id;
} RELOCATED;

struct cgroup {
	struct kernfs_node *kn;
} RELOCATED;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} RELOCATED;

/* kernel/cgroup/pids.c */
struct pids_cgroup {
	struct cgroup_subsys_state css;
	atomic64_t counter;
	atomic64_t limit;
} RELOCATED;

struct css_set {
	struct cgroup_subsys_state *subsys[16];
} RELOCATED;

/* Its values depend on the kernel's configuration. */
enum cgroup_subsys_id { pids_cgrp_id = 1 };

/* Without CONFIG_SCHED_INFO it is empty. */
struct sched_info {
	unsigned long long run_delay;
} RELOCATED;

struct sched_entity {
	u64 nr_migrations;
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
	struct task_struct *real_parent;
	unsigned int __state;
	struct signal_struct *signal;
	const struct cred *cred;
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
	sigset_t blocked;
	struct sched_info sched_info;
	struct sched_entity se;
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
