/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The few names a BPF program needs from its compiler and from the kernel: map
 * declarations, helper numbers (include/uapi/linux/bpf.h, ___BPF_FUNC_MAPPER) and
 * CO-RE questions. Written by hand so that the objects build with clang alone:
 * no kernel headers, no libbpf, no vmlinux.h.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define HIDDEN_CONST volatile const

/* BTF-defined maps: the loader reads the pointed-to types and array lengths. */
#define MAP_UINT(name, value) int (*name)[value]
#define MAP_TYPE(name, type) typeof(type) *name

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_HASH = 5,
	MAP_PERCPU_ARRAY = 6,
	MAP_LRU_HASH = 9,
	MAP_LRU_PERCPU_HASH = 10,
	MAP_RINGBUF = 27,
};

enum { UPDATE_ANY = 0, UPDATE_NOEXIST = 1, UPDATE_EXIST = 2 };
enum { RINGBUF_NO_WAKEUP = 1, RINGBUF_FORCE_WAKEUP = 2 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*const bpf_get_current_uid_gid)(void) = (void *)15;
static u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*const bpf_probe_read_user)(void *dst, u32 size, const void *src) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *dst, u32 size, const void *src) = (void *)113;
static long (*const bpf_probe_read_user_str)(void *dst, u32 size, const void *src) = (void *)114;
static long (*const bpf_probe_read_kernel_str)(void *dst, u32 size, const void *src) = (void *)115;
static u64 (*const bpf_get_current_ancestor_cgroup_id)(int level) = (void *)123;
static long (*const bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static void *(*const bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
struct task_struct;
struct pt_regs;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static struct pt_regs *(*const bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

/* BPF_FIELD_EXISTS of enum bpf_core_relo_kind's field_info numbering. */
#define core_field_exists(field) __builtin_preserve_field_info(field, 2)

/* BPF_ENUMVAL_EXISTS and BPF_ENUMVAL_VALUE, the same. The compiler wants
 * the bare name of a constant. */
#define core_enum_exists(type, value) __builtin_preserve_enum_value(*(type *)value, 0)
#define core_enum_value(type, value) __builtin_preserve_enum_value(*(type *)value, 1)
