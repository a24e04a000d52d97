// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Follows every process creation of the watched processes from the system call to
 * the exit of the child, and (when asked) counts system calls by class. It
 * decides nothing: the user side ranks, prices and finds remedies.
 *
 * A program on sys_enter or sys_exit costs every system call of the machine 50 to
 * 70 ns before its first instruction, so three ways to time a creation fill the same
 * records, and each program is loaded only where it is needed:
 *   TIMING_COPY      from the new memory descriptor's per-CPU counters (allocated just
 *                    before dup_mmap) to task_newtask: full forks only, but free;
 *   TIMING_SYSCALLS  sys_enter and sys_exit: exact, with the caller's waiting;
 *   TIMING_FENTRY    around kernel_clone: exact and free, where the kernel permits it.
 *
 * Nothing here may assume that a map update succeeds: a full map is counted in
 * `totals` and shown to the user as lost events.
 */
#include "arch.h"
#include "records.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set by the loader before the programs are loaded. */
HIDDEN_CONST u32 own_tgid = 0;     /* the tool itself is never watched */
HIDDEN_CONST u32 watch_all = 0;    /* else: by cgroup, else: by `watched` */
HIDDEN_CONST u64 watch_cgroup = 0; /* id in the unified hierarchy */
HIDDEN_CONST u32 watch_level = 0;  /* depth of that cgroup below the root */
HIDDEN_CONST u32 want_calls = 0;   /* system-call findings */
HIDDEN_CONST u32 timing = 0;       /* enum timing */
/* System calls that do nothing but answer, one bit for each number. Of other calls only
 * failures are counted, since a success has had an effect. */
HIDDEN_CONST u64 answering[8] = {};
HIDDEN_CONST u32 stacks_per_second = 64;
/* Whether a child's parent may be looked at: the verifiers of some kernels may refuse. */
HIDDEN_CONST u32 sees_parents = 1;

/* Places that make fewer pages private have no stack. */
#define EROSION_FROM 8
/* Each has `stacks_per_second` on each CPU: the many starts of a script leave no room for its
 * workers' pages otherwise. */
enum { RATE_CREATIONS, RATE_PAGES, RATE_CALLS, RATE_CALLERS, RATE_DRAWN, RATES };

enum timing { TIMING_COPY = 0, TIMING_SYSCALLS = 1, TIMING_FENTRY = 2 };

/* A creation under way in a thread. With TIMING_COPY only start_ns is set. */
struct pending {
	u64 start_ns;
	u64 asked;
	struct place place;
	u32 child;
	u32 pad;
};

/* The thread whose last call on this processor was one of a close loop. */
struct row {
	u32 tid;
};

/* A fork under way. */
struct fork_key {
	u64 start_ns;
	u32 tid;
	u32 pad;
};

struct wait_for_fork {
	struct fork_key fork;
	u64 since;
};

/* The threads that have waited for one fork. */
struct stalls {
	u64 threads;
	u64 ns;
};

struct rate {
	u64 second;
	u64 used;
};

/* What changes when a process becomes another program or renames itself. */
struct known_program {
	u64 image;
	u64 comm[2];
	u64 title[2]; /* the beginning of the arguments: setproctitle writes over them */
};

/* The thread whose write-protect fault this CPU is serving. */
struct fault_now {
	u32 tid;   /* 0: no thread, or another kind of fault */
	u32 child; /* its record in `live`, 0 for a parent */
};

struct {
	MAP_UINT(type, MAP_RINGBUF);
	MAP_UINT(max_entries, 8 << 20);
} ring SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct creation);
} live SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct pending);
} pending SEC(".maps");

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 65536);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} watched SEC(".maps");

struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, struct place);
	MAP_TYPE(value, u64);
} places SEC(".maps");

/* Written by the user side. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(key, struct return_key);
	MAP_TYPE(value, struct return_at);
} returns SEC(".maps");

/* Written by the user side, by thread. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct look);
} looks SEC(".maps");

struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct after_fork);
} after_forks SEC(".maps");

struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 1024);
	MAP_TYPE(key, struct refusal_key);
	MAP_TYPE(value, struct refusals);
} refusals SEC(".maps");

/* By thread: the fork that it waits for. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct wait_for_fork);
} behind SEC(".maps");

struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(key, struct fork_key);
	MAP_TYPE(value, struct stalls);
} stalls SEC(".maps");

/* Pages that children have copied before an exec of theirs. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, struct erosion_key);
	MAP_TYPE(value, struct eroded);
} erosion SEC(".maps");

/* By process: the program that was sent last. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct known_program);
} programs SEC(".maps");

struct {
	MAP_UINT(type, MAP_LRU_PERCPU_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, struct call_key);
	MAP_TYPE(value, struct call);
} calls SEC(".maps");

/* A thread's signal mask after its last rt_sigprocmask. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} masks SEC(".maps");

/* By process. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 1024);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct block_reads);
} block_reads SEC(".maps");

/* When a thread in such a write has submitted a read it now waits for. */
struct {
	MAP_UINT(type, MAP_LRU_HASH);
	MAP_UINT(max_entries, 1024);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} reading SEC(".maps");

/* The last calls on this processor. */
struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct row);
} rows SEC(".maps");

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct totals);
} totals SEC(".maps");

/* Never written: the initial value of records too large for the BPF stack. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct creation);
} blank SEC(".maps");

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, RATES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct rate);
} rates SEC(".maps");

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct fault_now);
} faults_now SEC(".maps");

INLINE struct totals *total(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

#define COUNT(member)                          \
	do {                                   \
		struct totals *t_ = total();   \
		if (t_)                        \
			t_->member++;          \
	} while (0)

/* Is the current process watched? */
INLINE int is_watched(u32 tgid)
{
	if (tgid == own_tgid)
		return 0;
	if (watch_all)
		return 1;
	if (watch_cgroup)
		return bpf_get_current_ancestor_cgroup_id(watch_level) == watch_cgroup;
	return bpf_map_lookup_elem(&watched, &tgid) != 0;
}

/* ---- stacks ---------------------------------------------------------------- */

/* A stack costs 2-4 us and the user side's unwinding more; a reading of a caller's lines costs the
 * user side some 300 us. */
INLINE int has_room(u32 rate, u64 now)
{
	struct rate *r = bpf_map_lookup_elem(&rates, &rate);
	u64 second = now >> 30;

	if (!r)
		return 0;
	if (r->second != second) {
		r->second = second;
		r->used = 0;
	}
	/* The draws of a place end as its count grows. A burst of them must not be cut short: the
	 * callers of its end would be missing. */
	if (r->used >= (rate == RATE_DRAWN ? 8 * stacks_per_second : stacks_per_second))
		return 0;
	r->used++;
	return 1;
}

/* What a stack is of: its class, and for creations so many that it stands for. */
#define STACK_OF(class, stands_for) ((class) | (u64)(stands_for) << 16)
/* One that a place can do without. */
#define STACK_DRAWN (1 << 15)

/* Not inlined: it is called from several programs and is the largest part of each. `what` is
 * STACK_OF(). Returns whether the rate had no room. */
static __attribute__((noinline)) int send_stack(struct place *place, u64 sp, u64 fp, u64 lr, u64 what)
{
	u32 class = what & (STACK_DRAWN - 1);
	u32 rate = what & STACK_DRAWN ? RATE_DRAWN :
		   class == CLASS_CREATION ? RATE_CREATIONS :
		   class == CLASS_EROSION ? RATE_PAGES : RATE_CALLS;
	u64 now = bpf_ktime_get_ns();
	struct stack *s;
	u32 at;

	if (!place)
		return 0;
	if (!has_room(rate, now)) {
		/* eroded() asks again at each page: that would be counted thousands of times. */
		if (class != CLASS_EROSION && rate != RATE_DRAWN)
			COUNT(stacks_skipped);
		return 1;
	}
	s = bpf_ringbuf_reserve(&ring, sizeof(*s), 0);
	if (!s) {
		COUNT(ring_full);
		return 0;
	}
	s->kind = KIND_STACK;
	s->place = *place;
	s->ns = now;
	s->sp = sp;
	s->fp = fp;
	s->lr = lr;
	s->tid = (u32)bpf_get_current_pid_tgid();
	s->class = class;
	s->stands_for = what >> 16;
	/* In pieces: the stack may end, or a page of it may be absent, anywhere. */
#pragma clang loop unroll(disable)
	for (at = 0; at < STACK_BYTES; at += 512)
		if (bpf_probe_read_user(s->top + at, 512, (void *)(sp + at)))
			break;
	s->bytes = at;
	/* Wake the reader: the process may be gone by the next regular poll, and its
	 * maps with it. */
	bpf_ringbuf_submit(s, RINGBUF_FORCE_WAKEUP);
	return 0;
}

/* Copies the memory that says what the caller's interpreter runs. */
INLINE void look_at_frames(struct caller *c)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	u32 tid = task->pid, at_frame;
	struct look *look = bpf_map_lookup_elem(&looks, &tid);
	u64 at = 0;

	if (!look || !mm || look->image != mm->arg_start)
		return;
	if (bpf_probe_read_user(&c->first, sizeof(c->first), (void *)look->head))
		return;
	/* One that cannot be read is 0 then. */
	bpf_probe_read_user(&c->word[0], sizeof(c->word[0]), (void *)look->word[0]);
	bpf_probe_read_user(&c->word[1], sizeof(c->word[1]), (void *)look->word[1]);
	at = c->first;
	if (look->through != NOT_THERE) {
		if (bpf_probe_read_user(c->structure, sizeof(c->structure), (void *)at))
			return;
		if (bpf_probe_read_user(&at, sizeof(at), (void *)(at + look->through)))
			return;
	}
	if (look->last != NOT_THERE) {
		s32 last = 0;

		if (bpf_probe_read_user(&last, sizeof(last), (void *)(c->first + look->last)))
			return;
		/* The innermost frames are wanted. */
		if (last >= LOOK_FRAMES)
			at += (u64)(u32)(last - LOOK_FRAMES + 1) * look->stride;
	}
#pragma clang loop unroll(disable)
	for (at_frame = 0; at_frame < LOOK_FRAMES && at; at_frame++) {
		struct frame_seen *frame = &c->frame[at_frame];

		frame->at = at;
		if (bpf_probe_read_user(frame->bytes, sizeof(frame->bytes), (void *)at))
			return;
		c->frames = at_frame + 1;
		if (look->next == NOT_THERE)
			at += look->stride;
		else if (bpf_probe_read_user(&at, sizeof(at), (void *)(at + look->next)))
			return;
	}
}

/*
 * Draws the creations of a place whose callers are read: the first 64, then some 32 random ones
 * each time that their number doubles. Random, because of two lines that take turns every second
 * creation is one line's. Returns how many a drawn one stands for, or 0.
 */
INLINE u64 drawn(u64 count)
{
	u64 others = count >> 6;

	others |= others >> 1;
	others |= others >> 2;
	others |= others >> 4;
	others |= others >> 8;
	others |= others >> 16;
	return bpf_get_prandom_u32() & others ? 0 : others + 1;
}

/* Has the caller's lines read. Returns caller.asked, or 0. */
static __attribute__((noinline)) u64 send_caller(u64 stands_for, u64 sp)
{
	u64 now = bpf_ktime_get_ns(), thread = bpf_get_current_pid_tgid();
	struct caller *c;

	if (!stands_for || !has_room(RATE_CALLERS, now))
		return 0;
	c = bpf_ringbuf_reserve(&ring, sizeof(*c), 0);
	if (!c) {
		COUNT(ring_full);
		return 0;
	}
	c->kind = KIND_CALLER;
	c->tgid = thread >> 32;
	c->sp = sp;
	c->stands_for = stands_for;
	c->asked = now;
	c->tid = thread;
	c->frames = 0;
	look_at_frames(c);
	/* At once: without a look, the caller stands still only while it waits for its child. */
	bpf_ringbuf_submit(c, RINGBUF_FORCE_WAKEUP);
	return now;
}

/* See struct place. 48 words cover the frames of every libc's fork and vfork seen. */
INLINE u64 first_code_word(struct task_struct *task, u64 sp)
{
	struct mm_struct *mm = task->mm;
	u64 words[16];
	u64 low, high;
	int part, i;

	if (!mm)
		return 0;
	low = mm->start_code;
	high = mm->end_code;
#pragma clang loop unroll(disable)
	for (part = 0; part < 3; part++) {
		if (bpf_probe_read_user(words, sizeof(words), (void *)(sp + part * sizeof(words))))
			return 0;
#pragma clang loop unroll(disable)
		for (i = 0; i < 16; i++)
			if (words[i] >= low && words[i] < high)
				return words[i];
	}
	return 0;
}

/* See struct place. */
INLINE u64 word_of_caller(struct task_struct *task, u64 ip, u64 sp)
{
	struct mm_struct *mm = task->mm;
	struct return_key key = { .ip = ip, .tgid = task->tgid };
	struct return_at *at = bpf_map_lookup_elem(&returns, &key);
	u64 word = 0;

	/* The function may be called by another of libc's, which has its return address elsewhere. */
	if (at && mm && at->image == mm->arg_start &&
	    !bpf_probe_read_user(&word, sizeof(word), (void *)(sp + at->above_sp)) &&
	    word >= at->low && word < at->high)
		return word;
	return first_code_word(task, sp);
}

/* Returns caller.asked of the creation, or 0. */
INLINE u64 note_place(struct place *place, u64 sp, u64 fp, u64 lr)
{
	u64 *seen = bpf_map_lookup_elem(&places, place);
	u64 count = 1, asked, stands_for;
	u32 tid = (u32)bpf_get_current_pid_tgid();
	int skipped = 0;

	if (seen)
		count = __sync_fetch_and_add(seen, 1) + 1;
	/* First of all: the user side takes milliseconds to read a new program's maps and files, for
	 * its stack, and the caller does not wait as long. */
	stands_for = drawn(count);
	asked = send_caller(stands_for, sp);
	/* The 1st, 2nd, 4th, 8th ... call, so that a place has a stack as soon as there is room. The
	 * drawn ones tell the shares of several callers behind one key. An interpreter has its lines
	 * above, and one native stack. */
	if (!(count & (count - 1)))
		skipped = send_stack(place, sp, fp, lr, STACK_OF(CLASS_CREATION, stands_for));
	else if (stands_for && !bpf_map_lookup_elem(&looks, &tid))
		send_stack(place, sp, fp, lr, STACK_OF(CLASS_CREATION | STACK_DRAWN, stands_for));
	/* Without room for its stack the call is not counted, and the next one is in its place:
	 * beside many short programs a place would have no stack until its count has doubled. */
	count -= skipped;
	if (!seen)
		bpf_map_update_elem(&places, place, &count, UPDATE_ANY);
	else if (skipped)
		__sync_fetch_and_sub(seen, 1);
	return asked;
}

/* ---- creations ------------------------------------------------------------- */

/* Not inlined: the largest part of a program that runs for each creation. */
static __attribute__((noinline)) int send_program(struct known_program *now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	struct program *p;
	u64 length;

	if (!mm || !now)
		return 0;
	p = bpf_ringbuf_reserve(&ring, sizeof(*p), 0);
	if (!p) {
		COUNT(ring_full);
		return 0;
	}
	p->kind = KIND_PROGRAM;
	p->tgid = task->tgid;
	p->image = now->image;
	p->argv_bytes = 0;
	p->pad = 0;
	__builtin_memcpy(p->comm, now->comm, sizeof(p->comm));
	/* The kernel puts the path right behind the environment (copy_strings() in
	 * fs/exec.c, AT_EXECFN). */
	if (bpf_probe_read_user_str(p->path, sizeof(p->path), (void *)mm->env_end) < 0)
		p->path[0] = 0;
	length = mm->arg_end - now->image;
	if (length > ARGV_BYTES)
		length = ARGV_BYTES;
	if (length && !bpf_probe_read_user(p->argv, (u32)length, (void *)now->image))
		p->argv_bytes = length;
	bpf_ringbuf_submit(p, RINGBUF_NO_WAKEUP);
	return 0;
}

INLINE void note_program(struct task_struct *task, struct mm_struct *mm)
{
	struct known_program now = {}, *known;
	u32 tgid = task->tgid;

	now.image = mm->arg_start;
	bpf_probe_read_kernel(now.comm, sizeof(now.comm), task->group_leader->comm);
	bpf_probe_read_user(now.title, sizeof(now.title), (void *)now.image);
	known = bpf_map_lookup_elem(&programs, &tgid);
	if (known && known->image == now.image && known->comm[0] == now.comm[0] &&
	    known->comm[1] == now.comm[1] && known->title[0] == now.title[0] &&
	    known->title[1] == now.title[1])
		return;
	bpf_map_update_elem(&programs, &tgid, &now, UPDATE_ANY);
	send_program(&now);
}

/* Not inlined: it is seldom called, from a program that runs for each system call. */
static __attribute__((noinline)) int tell_program(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;

	if (mm)
		note_program(task, mm);
	return 0;
}

/* Notes the system call and place that the thread came from; samples its stack. Returns
 * caller.asked, or 0. */
INLINE u64 place_of_caller(struct place *place, struct task_struct *task)
{
	struct pt_regs *regs = bpf_task_pt_regs(task);
	struct mm_struct *mm = task->mm;
	u64 sp = sp_of(regs);

	place->image = mm ? mm->arg_start : 0;
	place->tgid = task->tgid;
	place->nr = nr_of(regs);
	place->ip = ip_of(regs);
	place->word = word_of_caller(task, place->ip, sp);
	return note_place(place, sp, fp_of(regs), lr_of(regs));
}

INLINE void begin_creation(struct task_struct *task)
{
	struct pending p = {};
	u32 tid = task->pid;

	p.asked = place_of_caller(&p.place, task);
	/* Taken last, so that the time leaves out our own work above. */
	p.start_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&pending, &tid, &p, UPDATE_ANY);
}

/* Whoever waited for the fork has gone on long since. */
INLINE void stalled_behind(struct creation *c)
{
	struct fork_key key = { .start_ns = c->start_ns, .tid = c->caller_tid };
	struct stalls *sum;

	if (!key.start_ns || (c->flags & CLONE_VM))
		return;
	sum = bpf_map_lookup_elem(&stalls, &key);
	if (!sum)
		return;
	c->stalled = sum->threads;
	c->stalled_ns = sum->ns;
	bpf_map_delete_elem(&stalls, &key);
}

INLINE void finish_if_complete(struct creation *c, u32 child, u32 bit)
{
	u32 before = __sync_fetch_and_or(&c->state, bit);

	if ((before | bit) != (STATE_RETURNED | STATE_EXITED) || before == (before | bit))
		return;
	stalled_behind(c);
	if (bpf_ringbuf_output(&ring, c, sizeof(*c), RINGBUF_NO_WAKEUP))
		COUNT(ring_full);
	bpf_map_delete_elem(&live, &child);
}

INLINE void end_creation(u32 tid)
{
	struct pending *p = bpf_map_lookup_elem(&pending, &tid);
	struct creation *c;
	u32 child;

	if (!p)
		return;
	child = p->child;
	if (child) {
		c = bpf_map_lookup_elem(&live, &child);
		/* The pid may belong to another creator's child by now. */
		if (c && c->caller_tid == tid) {
			c->returned_ns = bpf_ktime_get_ns();
			finish_if_complete(c, child, STATE_RETURNED);
		}
	}
	bpf_map_delete_elem(&pending, &tid);
}

INLINE u64 copied_count(const atomic_long_t *from)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), from);
	return value;
}

INLINE void memory_of(struct creation *c, struct mm_struct *mm)
{
	c->pgtables_bytes = mm->pgtables_bytes.counter;
	if (core_field_exists(mm->hugetlb_usage))
		c->hugetlb_pages = mm->hugetlb_usage.counter;
	if (core_field_exists(mm->rss_stat[0].count)) {
		c->file_pages = mm->rss_stat[RSS_FILE].count;
		c->anon_pages = mm->rss_stat[RSS_ANON].count;
		c->swap_pages = mm->rss_stat[RSS_SWAP].count;
		c->shmem_pages = mm->rss_stat[RSS_SHMEM].count;
	} else {
		/* By copies: the 6.1 verifier does not walk into an array of atomic_long_t. */
		struct mm_struct___before62 *old = (void *)mm;

		c->file_pages = copied_count(&old->rss_stat.count[RSS_FILE]);
		c->anon_pages = copied_count(&old->rss_stat.count[RSS_ANON]);
		c->swap_pages = copied_count(&old->rss_stat.count[RSS_SWAP]);
		c->shmem_pages = copied_count(&old->rss_stat.count[RSS_SHMEM]);
	}
}

INLINE void watch_child(u32 tgid)
{
	u32 one = 1;

	if (bpf_map_update_elem(&watched, &tgid, &one, UPDATE_ANY))
		COUNT(live_full);
}

/* ---- refused creations ------------------------------------------------------- */

/* The first cgroup upwards that has as many processes as it may have. pids_try_charge()
 * (kernel/cgroup/pids.c) has given back by now what it had counted. */
INLINE void full_cgroup(struct refused *r, struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state *css = 0;
	struct cgroup *cgroup = 0;
	struct kernfs_node *node = 0;
	u32 id, up;

	if (!set || !core_enum_exists(enum cgroup_subsys_id, pids_cgrp_id) ||
	    !core_field_exists(((struct pids_cgroup *)0)->limit))
		return;
	id = core_enum_value(enum cgroup_subsys_id, pids_cgrp_id);
	bpf_probe_read_kernel(&css, sizeof(css), (void *)&set->subsys[0] + 8 * id);
#pragma clang loop unroll(disable)
	for (up = 0; css && up < 16; up++) {
		struct pids_cgroup *pids = (void *)css;
		s64 count = 0, limit = 0;

		bpf_probe_read_kernel(&count, sizeof(count), &pids->counter);
		bpf_probe_read_kernel(&limit, sizeof(limit), &pids->limit);
		/* The root has neither. */
		if (limit > 0 && count >= limit) {
			bpf_probe_read_kernel(&cgroup, sizeof(cgroup), &css->cgroup);
			bpf_probe_read_kernel(&node, sizeof(node), &cgroup->kn);
			bpf_probe_read_kernel(&r->pids_cgroup, sizeof(u64), &node->id);
			r->pids_limit = limit;
			return;
		}
		bpf_probe_read_kernel(&css, sizeof(css), &css->parent);
	}
}

/* The limits that copy_process() (kernel/fork.c) compares with, as they are now. */
INLINE void limits_of(struct refused *r, struct task_struct *task)
{
	const struct cred *cred = task->cred;
	struct nsproxy *proxy = task->nsproxy;
	struct pid_namespace *children;
	struct ucounts *counts;

	r->user_limit = task->signal->rlim[RLIMIT_NPROC].rlim_cur;
	r->user_count = ~0ull;
	if (cred) {
		r->uid = cred->uid.val;
		bpf_probe_read_kernel(&r->capabilities, sizeof(u64), &cred->cap_effective);
		counts = cred->ucounts;
		if (counts && core_field_exists(counts->rlimit))
			r->user_count = copied_count(&counts->rlimit[0]);
	}
	full_cgroup(r, task);
	if (!proxy)
		return;
	children = proxy->pid_ns_for_children;
	if (children)
		r->no_init = !(children->pid_allocated & PIDNS_ADDING);
}

INLINE u64 flags_of(struct pt_regs *regs)
{
	u64 flags = 0;

	if (is_compat(regs))
		return 0;
	switch (nr_of(regs)) {
	case NR_CLONE:
		return argument1(regs);
#ifdef NR_VFORK
	case NR_VFORK:
		return CLONE_VM;
#endif
	case NR_CLONE3: /* the first field of struct clone_args */
		bpf_probe_read_user(&flags, sizeof(flags), (void *)argument1(regs));
	}
	return flags;
}

/* Not inlined: it is seldom called, and from two programs. `place` and the time are those of
 * the call's beginning, if that was seen. */
static __attribute__((noinline)) int creation_refused(struct place *place, u64 start_ns, u32 error)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	u64 now = bpf_ktime_get_ns();
	struct refusal_key key = {};
	struct refusals *sum;
	struct refused *r;
	u64 flags;

	if (!mm)
		return 0;
	key.error = error;
	flags = flags_of(bpf_task_pt_regs(task));
	key.is_thread = !!(flags & CLONE_THREAD);
	key.shares_memory = !!(flags & CLONE_VM);
	if (place)
		key.place = *place;
	else
		place_of_caller(&key.place, task);
	note_program(task, mm);
	sum = bpf_map_lookup_elem(&refusals, &key);
	if (!sum) {
		struct refusals none = {};

		bpf_map_update_elem(&refusals, &key, &none, UPDATE_NOEXIST);
		sum = bpf_map_lookup_elem(&refusals, &key);
		if (!sum)
			return 0;
	}
	if (start_ns) {
		__sync_fetch_and_add(&sum->timed, 1);
		__sync_fetch_and_add(&sum->ns, now - start_ns);
	}
	now = __sync_fetch_and_add(&sum->count, 1) + 1;
	if (now & (now - 1))
		return 0;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		COUNT(ring_full);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = KIND_REFUSED;
	r->key = key;
	r->tid = task->pid;
	r->data_pages = mm->data_vm;
	r->cgroup = bpf_get_current_cgroup_id();
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
	limits_of(r, task);
	/* What else is to be asked of /proc changes soon. */
	bpf_ringbuf_submit(r, RINGBUF_FORCE_WAKEUP);
	return 0;
}

INLINE int is_refusal(s64 result)
{
	return result == -11 || result == -12; /* EAGAIN, ENOMEM */
}

/* A creation under way in this thread has failed. */
INLINE void creation_failed(u32 tid, s64 result)
{
	struct pending *p = bpf_map_lookup_elem(&pending, &tid);

	if (is_refusal(result)) {
		/* With TIMING_COPY the beginning may be another allocation's. */
		if (timing != TIMING_COPY && p)
			creation_refused(&p->place, p->start_ns, -result);
		else
			creation_refused(0, 0, -result);
	}
	if (p)
		bpf_map_delete_elem(&pending, &tid);
}

/* The creator of a child, if that thread is still its parent and is in a system call. */
INLINE struct task_struct *creator_in_call(struct creation *c, struct task_struct *child)
{
	struct task_struct *parent;

	if (!sees_parents)
		return 0;
	parent = child->real_parent;
	if ((u32)parent->pid != c->caller_tid)
		return 0;
	return is_in_call(bpf_task_pt_regs(parent), parent->__state) ? parent : 0;
}

INLINE void note_creator_at_exec(struct creation *c, struct task_struct *child)
{
	struct task_struct *creator = creator_in_call(c, child);
	struct pt_regs *regs;

	c->caller_at_exec = 0;
	if (!creator)
		return;
	regs = bpf_task_pt_regs(creator);
	c->caller_at_exec = nr_of(regs) + 1;
	c->argument_at_exec = argument1(regs);
}

/*
 * A creator that was woken in the call which it was in at the exec has waited for the exec. On a
 * busy machine it has no processor until a short child has ended.
 */
INLINE void note_creator_at_exit(struct creation *c, struct task_struct *child)
{
	struct task_struct *creator = creator_in_call(c, child);
	struct pt_regs *regs;
	u32 call;

	if (!creator)
		return;
	regs = bpf_task_pt_regs(creator);
	call = nr_of(regs) + 1;
	if (creator->__state || call != c->caller_at_exec || argument1(regs) != c->argument_at_exec)
		c->caller_at_exit = call;
}

/* A child begins an exec: who waits for it has not been woken yet. */
INLINE void begins_exec(struct creation *c)
{
	if (!c->exec_ns)
		note_creator_at_exec(c, bpf_get_current_task_btf());
}

/* The process is a child that has executed nothing, and makes a thread or a process. */
static void note_made_by_child(u32 tgid)
{
	struct creation *c = bpf_map_lookup_elem(&live, &tgid);

	if (c && !c->exec_ns)
		__sync_fetch_and_add(&c->child_made, 1);
}

/* copy_process() is done; the child is not yet running. */
SEC("tp_btf/task_newtask")
int on_newtask(u64 *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *child = (void *)ctx[0];
	u64 flags = ctx[1];
	struct task_struct *task = bpf_get_current_task_btf();
	u32 tgid = task->tgid, tid = task->pid, pid = child->tgid, zero = 0;
	struct mm_struct *mm = task->mm;
	struct pending *p;
	struct creation *c;
	void *empty;

	if (!mm) /* a kernel thread */
		return 0;
	if (tgid == own_tgid) {
		/* The loader lists itself while it starts the command to be watched. */
		if (!(flags & CLONE_THREAD) && bpf_map_lookup_elem(&watched, &tgid))
			watch_child(pid);
		return 0;
	}
	if (!is_watched(tgid))
		return 0;
	note_made_by_child(tgid);
	if (flags & CLONE_THREAD) {
		COUNT(threads);
		return 0;
	}
	COUNT(creations);
	/* An entry stays after its process, for the user side to read: not into the next
	 * process of that number. */
	bpf_map_delete_elem(&after_forks, &pid);
	if (!watch_all && !watch_cgroup)
		watch_child(pid);
	if (!(flags & CLONE_VM) && !bpf_map_lookup_elem(&after_forks, &tgid)) {
		struct after_fork none = {};

		bpf_map_update_elem(&after_forks, &tgid, &none, UPDATE_NOEXIST);
	}

	note_program(task, mm);

	empty = bpf_map_lookup_elem(&blank, &zero);
	if (!empty)
		return 0;
	/* A record that is still there belongs to the pid's last owner, and is lost. */
	if (bpf_map_update_elem(&live, &pid, empty, UPDATE_NOEXIST)) {
		COUNT(live_full);
		if (bpf_map_update_elem(&live, &pid, empty, UPDATE_EXIST))
			return 0;
	}
	c = bpf_map_lookup_elem(&live, &pid);
	if (!c)
		return 0;
	p = bpf_map_lookup_elem(&pending, &tid);
	c->kind = KIND_CREATION;
	c->flags = flags;
	c->copied_ns = now;
	c->child = pid;
	c->caller_tid = tid;
	c->cgroup = bpf_get_current_cgroup_id();
	c->uid = bpf_get_current_uid_gid();
	bpf_probe_read_kernel(c->caller_comm, sizeof(c->caller_comm), task->comm);
	memory_of(c, mm);
	if (timing != TIMING_COPY && p) {
		p->child = pid;
		c->start_ns = p->start_ns;
		c->asked = p->asked;
		c->place = p->place;
		return 0;
	}
	/* Nobody will report the return: there is no program for it, or it was attached
	 * in the middle of the call. */
	c->state = STATE_RETURNED;
	c->asked = place_of_caller(&c->place, task);
	if (!p)
		return 0;
	/* A vfork has no new memory: what is pending is from elsewhere. */
	if (!(flags & CLONE_VM))
		c->start_ns = p->start_ns;
	bpf_map_delete_elem(&pending, &tid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = (void *)ctx[0];
	struct linux_binprm *bprm = (void *)ctx[2];
	u32 tgid = task->tgid;
	struct creation *c = bpf_map_lookup_elem(&live, &tgid);
	struct mm_struct *mm;
	u64 start, length;

	if (timing == TIMING_COPY) {
		u32 tid = ctx[1];
		struct pending *p = bpf_map_lookup_elem(&pending, &tid);

		/* exec makes a memory descriptor as well, as one of its first steps
		 * (bprm_mm_init): what has been seen of it is its beginning. */
		if (p && c && !c->exec_ns)
			c->exec_enter_ns = p->start_ns;
		bpf_map_delete_elem(&pending, &tid);
	}
	if (!c)
		return 0;
	c->execs++;
	if (c->exec_ns)
		return 0;
	c->exec_ns = now;
	c->exec_tid = (u32)ctx[1]; /* the thread's id before it became the leader */
	/* Too late for a creator on another CPU, which may have gone on. */
	if (timing == TIMING_FENTRY)
		note_creator_at_exec(c, task);
	bpf_probe_read_kernel_str(c->exec_path, sizeof(c->exec_path), bprm->filename);
	bpf_probe_read_kernel(c->child_comm, sizeof(c->child_comm), task->comm);
	mm = task->mm;
	if (!mm)
		return 0;
	start = mm->arg_start;
	length = mm->arg_end - start;
	if (length > ARGV_BYTES)
		length = ARGV_BYTES;
	if (length && !bpf_probe_read_user(c->argv, (u32)length, (void *)start))
		c->argv_bytes = length;
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(u64 *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = (void *)ctx[0];
	u32 tid = task->pid, tgid = task->tgid;
	struct signal_struct *signal = task->signal;
	struct creation *c;
	int code;

	/* A thread killed inside clone never reaches sys_exit. */
	end_creation(tid);
	if (want_calls)
		bpf_map_delete_elem(&masks, &tid); /* the tid's next owner has another mask */
	/* `live` was lowered before this tracepoint: 0 only in the last thread. */
	if (signal->live.counter)
		return 0;
	c = bpf_map_lookup_elem(&live, &tgid);
	if (c) {
		code = signal->group_exit_code;
		if (!code)
			code = task->group_leader->exit_code;
		c->exit_code = code;
		c->exit_ns = now;
		if (core_field_exists(task->sched_info.run_delay))
			c->processor_wait_ns = task->sched_info.run_delay;
		/* Before its descriptors are closed and its parent is told. */
		note_creator_at_exit(c, task);
		if (!c->exec_ns)
			bpf_probe_read_kernel(c->child_comm, sizeof(c->child_comm), task->comm);
		finish_if_complete(c, tgid, STATE_EXITED);
	}
	if (!watch_all && !watch_cgroup)
		bpf_map_delete_elem(&watched, &tgid);
	return 0;
}

/* ---- exec attempts --------------------------------------------------------- */

INLINE void begin_exec(u32 tgid)
{
	struct creation *c = bpf_map_lookup_elem(&live, &tgid);

	if (!c)
		return;
	c->exec_tries++;
	begins_exec(c);
	if (!c->exec_ns)
		c->exec_enter_ns = bpf_ktime_get_ns();
}

INLINE void end_exec(u32 tgid, s64 result, u64 path)
{
	struct creation *c;

	if (result >= 0)
		return;
	c = bpf_map_lookup_elem(&live, &tgid);
	if (!c)
		return;
	if (result == -2 || result == -20) /* ENOENT, ENOTDIR */
		c->exec_missing++;
	else if (result == -26) /* ETXTBSY */
		c->exec_busy++;
	else
		c->exec_other++;
	c->exec_errno = -result;
	bpf_probe_read_user_str(c->failed_path, sizeof(c->failed_path), (void *)path);
}

/* ---- system calls ---------------------------------------------------------- */

INLINE int only_answers(u32 nr)
{
	return nr < 512 && (answering[nr / 64] >> (nr % 64)) & 1;
}

/* A program that calls are counted for. */
struct blamed {
	u64 image;
	u32 tgid;
	u32 is_current;
};

INLINE void count_call(struct blamed who, u32 class, struct pt_regs *regs, s64 result, u64 bytes)
{
	u32 nr = nr_of(regs);
	struct call_key key = {
		.ip = ip_of(regs), .image = who.image, .tgid = who.tgid, .nr = nr, .class = class
	};
	struct call *call = bpf_map_lookup_elem(&calls, &key);
	struct place place = { .ip = key.ip, .image = who.image, .tgid = who.tgid, .nr = nr };

	if (!call) {
		struct call first = { .count = 1, .last = result, .bytes = bytes };

		/* It could never be a finding, and short-lived processes make many. */
		if (!class && result >= 0 && !only_answers(nr))
			return;
		if (!bpf_map_update_elem(&calls, &key, &first, UPDATE_NOEXIST)) {
			if (class)
				goto stack;
			return;
		}
		/* Another thread was faster at the same place, or there is no room. */
		call = bpf_map_lookup_elem(&calls, &key);
		if (!call) {
			COUNT(calls_full);
			return;
		}
	}
	/* The first result on this CPU has no predecessor. */
	if (call->count && call->last == result)
		call->same++;
	call->count++;
	call->bytes += bytes;
	call->last = result;
	/* Powers of two again; plain calls only once they are many. */
	if (call->count & (call->count - 1))
		return;
	if (!class && call->count < 4096)
		return;
stack:
	/* By the time that the calls are read, the process may be another program. The creator's
	 * was sent at the creation. */
	if (who.is_current)
		tell_program();
	send_stack(&place, sp_of(regs), fp_of(regs), lr_of(regs), STACK_OF(class, 1));
}

/* Before its exec a child's calls are its creator's doing. */
INLINE struct blamed blamed(struct blamed own)
{
	struct creation *c = bpf_map_lookup_elem(&live, &own.tgid);
	struct blamed creator = {};

	if (!c || c->exec_ns)
		return own;
	creator.image = c->place.image;
	creator.tgid = c->place.tgid;
	return creator;
}

/*
 * Did this rt_sigprocmask, now over, leave the mask as it was? The old mask is in the
 * caller's oldset if it asked for it; else it is the mask that the thread's last call
 * left. A signal handler's return in between may have changed the mask. Then a
 * needless call is not counted; a caller that sets the same mask twice is never
 * miscounted the other way round.
 */
INLINE int sigmask_needless(struct task_struct *task, u64 set, u64 oldset)
{
	u32 tid = task->pid;
	u64 new = task->blocked.sig[0], old;
	u64 *last;

	if (!set)
		return 1;
	if (oldset)
		return !bpf_probe_read_user(&old, sizeof(old), (void *)oldset) && old == new;
	last = bpf_map_lookup_elem(&masks, &tid);
	if (last) {
		old = *last;
		*last = new;
		return old == new;
	}
	bpf_map_update_elem(&masks, &tid, &new, UPDATE_ANY);
	return 0;
}

union path_head {
	char text[24];
	u64 words[3];
};

INLINE u32 path_class(u64 path)
{
	static const union path_head localtime = { "/etc/localtime" };
	static const union path_head zoneinfo = { "/usr/share/zoneinfo/" };
	union path_head head = {};

	if (bpf_probe_read_user_str(head.text, sizeof(head.text), (void *)path) < 0)
		return CLASS_ANY;
	if (head.words[0] == localtime.words[0])
		return head.words[1] == localtime.words[1] ? CLASS_LOCALTIME : CLASS_ANY;
	if (head.words[0] == zoneinfo.words[0] && head.words[1] == zoneinfo.words[1] &&
	    (head.words[2] & 0xffffffff) == zoneinfo.words[2])
		return CLASS_ZONEINFO;
	return CLASS_ANY;
}

/* A buffered write of part of a page to a block device makes the kernel read it. */
INLINE int partial_block_write(struct task_struct *task, u64 fd, u64 bytes)
{
	struct files_struct *files = task->files;
	struct fdtable *table;
	struct file *file = 0;
	struct inode *inode = 0;
	u32 flags = 0;
	u16 mode = 0;

	if (!(bytes & 4095) || !files)
		return 0;
	table = files->fdt;
	if (!table || fd >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	if (!file)
		return 0;
	bpf_probe_read_kernel(&flags, sizeof(flags), &file->f_flags);
	bpf_probe_read_kernel(&inode, sizeof(inode), &file->f_inode);
	bpf_probe_read_kernel(&mode, sizeof(mode), &inode->i_mode);
	return (mode & 0170000) == 0060000 && !(flags & 040000); /* S_IFBLK, O_DIRECT */
}

/*
 * Would the preloaded library answer this refused call without the kernel? By the rules of
 * forkless_speculate::close_loop: a child of a fork, before its exec, calls for numbers beyond its
 * table of descriptors, from 1024 on, and makes no other call in between. It learns that from a
 * streak: 64 calls in a row, each for a neighbour of the number before. The time since the call
 * before is the loop's, waits for a processor included: the library's limit of time counts none of
 * them either.
 *
 * `row` is the processor's. So it proves nothing where the thread has come to another one: there a
 * neighbour of the last number goes on with the loop.
 */
#define CLOSES_STREAK 64
#define CLOSES_KNOWN (~0u)

/* Not inlined: the functions of one chain of calls have 512 bytes of stack together, and Linux 6.1
 * refused on_sys_exit with 544. */
static __attribute__((noinline)) u64 answered_close(struct task_struct *task, struct row *row,
						      u32 number)
{
	u64 now = bpf_ktime_get_ns(), since, migrations = task->se.nr_migrations;
	u32 tgid = task->tgid, tid = task->pid;
	struct files_struct *files = task->files;
	struct fdtable *table = files ? files->fdt : 0;
	struct creation *c;
	int is_first, is_next, is_unbroken, is_beyond;
	s64 step;

	is_first = row->tid != tid;
	row->tid = tid;
	c = bpf_map_lookup_elem(&live, &tgid);
	if (!c || !table || c->exec_ns || c->flags & CLONE_VM)
		return 0;
	since = now - c->close_ns;
	step = (s64)number - c->close_number;
	is_next = step >= -1 && step <= 1;
	is_unbroken = migrations == c->close_migrations ? !is_first : is_next;
	c->close_ns = now;
	c->close_number = number;
	c->close_migrations = migrations;
	/* A negative number is none. */
	is_beyond = number >= 1024 && number < 1u << 31 && number >= table->max_fds;
	if (is_unbroken && c->close_streak == CLOSES_KNOWN) {
		if (!is_beyond)
			return 0;
		c->closes++;
		c->closing_ns += since;
		return 1;
	}
	if (!is_unbroken || !is_next)
		c->close_streak = 0;
	else if (++c->close_streak >= CLOSES_STREAK && is_beyond)
		c->close_streak = CLOSES_KNOWN;
	return 0;
}

/* fcntl's commands that a close loop may call in place of close: F_GETFD, F_SETFD. */
INLINE int is_of_close_loop(struct pt_regs *regs, u32 nr, s64 result)
{
	if (result != -9) /* EBADF */
		return 0;
	return nr == NR_CLOSE || (nr == NR_FCNTL && (argument2(regs) == 1 || argument2(regs) == 2));
}

INLINE void classify(struct task_struct *task, struct pt_regs *regs, u32 nr, s64 result)
{
	struct mm_struct *mm = task->mm;
	struct blamed who = { .tgid = task->tgid, .is_current = 1 };
	u32 class = CLASS_ANY, zero = 0;
	u64 bytes = 0, answered = 0;
	struct row *row = bpf_map_lookup_elem(&rows, &zero);

	who.image = mm ? mm->arg_start : 0;
	if (row) {
		if (is_of_close_loop(regs, nr, result))
			answered = answered_close(task, row, argument1(regs));
		else if (row->tid == (u32)task->pid)
			row->tid = 0;
	}
	switch (nr) {
	case NR_CLOSE:
		if (result == -9) { /* EBADF */
			class = CLASS_CLOSE_UNUSED;
			bytes = answered;
			who = blamed(who);
		}
		break;
	case NR_RT_SIGPROCMASK:
		if (!result && sigmask_needless(task, argument2(regs), argument3(regs))) {
			class = CLASS_SIGMASK_NEEDLESS;
			who = blamed(who);
		}
		break;
	case NR_WRITE:
	case NR_PWRITE64:
		bytes = result > 0 ? result : 0;
		if (partial_block_write(task, argument1(regs), argument3(regs)))
			class = CLASS_BLOCK_WRITE_PARTIAL;
		break;
#ifdef NR_OPEN /* the calls that *at() replaces, of the older architectures */
	case NR_OPEN:
	case NR_STAT:
	case NR_LSTAT:
	case NR_ACCESS:
		class = path_class(argument1(regs));
		break;
#endif
	case NR_OPENAT:
	case NR_OPENAT2:
	case NR_NEWFSTATAT:
	case NR_FACCESSAT:
	case NR_FACCESSAT2:
	case NR_STATX:
		class = path_class(argument2(regs));
		break;
	}
	count_call(who, class, regs, result, bytes);
}

/* ---- entry points of the tp_btf tier ---------------------------------------- */

SEC("tp_btf/sys_enter")
int on_sys_enter(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	u64 nr = ctx[1];
	struct task_struct *task;

	/* Every system call of the machine passes here: leave as early as possible. */
	switch (nr) {
	case NR_CLONE:
#ifdef NR_FORK
	case NR_FORK:
	case NR_VFORK:
#endif
	case NR_CLONE3: /* also as a 32-bit call */
	case NR_EXECVE:
	case NR_EXECVEAT:
		break;
	case NR32_FORK: /* as 64-bit numbers these are other, common calls */
	case NR32_EXECVE:
	case NR32_CLONE:
	case NR32_VFORK:
		if (!is_compat(regs))
			return 0;
		break;
	default:
		return 0;
	}
	task = bpf_get_current_task_btf();
	if (nr == NR_EXECVE || nr == NR_EXECVEAT || nr == NR32_EXECVE)
		begin_exec(task->tgid);
	else if (is_watched(task->tgid))
		begin_creation(task);
	return 0;
}

SEC("tp_btf/sys_exit")
int on_sys_exit(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	s64 result = ctx[1];
	u32 nr = nr_of(regs);
	struct task_struct *task;

	switch (nr) {
	case NR32_CLONE:
	case NR32_VFORK:
	case NR32_FORK:
		if (!is_compat(regs))
			break;
		/* fall through */
	case NR_CLONE:
#ifdef NR_FORK
	case NR_FORK:
	case NR_VFORK:
#endif
	case NR_CLONE3:
		if (timing == TIMING_SYSCALLS && result > 0)
			end_creation((u32)bpf_get_current_pid_tgid());
		if (timing != TIMING_FENTRY && result < 0 &&
		    is_watched(bpf_get_current_pid_tgid() >> 32))
			creation_failed((u32)bpf_get_current_pid_tgid(), result);
		break;
	case NR_EXECVE:
	case NR_EXECVEAT:
		if (result < 0)
			end_exec(bpf_get_current_pid_tgid() >> 32, result,
				 nr == NR_EXECVE ? argument1(regs) : argument2(regs));
		break;
	}
	if (want_calls) {
		task = bpf_get_current_task_btf();
		if (is_watched(task->tgid) && !is_compat(regs))
			classify(task, regs, nr, result);
	}
	return 0;
}

/* ---- reads for partial writes ----------------------------------------------- */

/* The block that a partial write falls into is read by the writer itself
 * (block_write_begin, fs/buffer.c), which then sleeps until it has come. */
SEC("tp_btf/block_bio_queue")
int on_bio_queue(u64 *ctx)
{
	struct bio *bio = (void *)ctx[0];
	struct task_struct *task;
	struct pt_regs *regs;
	struct block_reads none = {}, *sum;
	u64 now;
	u32 tid, tgid;

	if (bio->bi_opf & 0xff) /* REQ_OP_READ is 0 */
		return 0;
	task = bpf_get_current_task_btf();
	tgid = task->tgid;
	if (!task->mm || !is_watched(tgid))
		return 0;
	regs = bpf_task_pt_regs(task);
	if ((nr_of(regs) != NR_WRITE && nr_of(regs) != NR_PWRITE64) || is_compat(regs) ||
	    !partial_block_write(task, argument1(regs), argument3(regs)))
		return 0;
	sum = bpf_map_lookup_elem(&block_reads, &tgid);
	if (!sum) {
		bpf_map_update_elem(&block_reads, &tgid, &none, UPDATE_NOEXIST);
		sum = bpf_map_lookup_elem(&block_reads, &tgid);
		if (!sum)
			return 0;
	}
	__sync_fetch_and_add(&sum->reads, 1);
	tid = task->pid;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&reading, &tid, &now, UPDATE_ANY);
	return 0;
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	u32 tid = next->pid, tgid = next->tgid;
	u64 *began;
	struct block_reads *sum;

	if (!tid)
		return 0;
	began = bpf_map_lookup_elem(&reading, &tid);
	if (!began)
		return 0;
	sum = bpf_map_lookup_elem(&block_reads, &tgid);
	if (sum) {
		__sync_fetch_and_add(&sum->timed, 1);
		__sync_fetch_and_add(&sum->ns, bpf_ktime_get_ns() - *began);
	}
	bpf_map_delete_elem(&reading, &tid);
	return 0;
}

/* ---- entry points of the other timings -------------------------------------- */

SEC("fentry/kernel_clone")
int on_clone_enter(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (task->mm && is_watched(task->tgid))
		begin_creation(task);
	return 0;
}

SEC("fexit/kernel_clone")
int on_clone_exit(u64 *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	s64 result = (s32)ctx[1];

	if (result >= 0)
		end_creation((u32)id);
	else if (is_watched(id >> 32))
		creation_failed((u32)id, result);
	return 0;
}

/* mm_init() of the child's memory, the step before dup_mmap(): since Linux 6.2 it
 * allocates per-CPU counters. The last allocation before task_newtask is it. */
SEC("tp_btf/percpu_alloc_percpu")
int on_percpu_alloc(u64 *ctx)
{
	struct pending p = {};
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, tgid = id >> 32;
	struct creation *c;

	if (!is_watched(tgid))
		return 0;
	c = bpf_map_lookup_elem(&live, &tgid);
	if (c)
		begins_exec(c);
	p.start_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&pending, &tid, &p, UPDATE_ANY);
	return 0;
}

/* ---- threads that wait behind a fork ----------------------------------------- */

/*
 * dup_mmap() (kernel/fork.c) holds the caller's mmap_lock for writing until all page
 * tables are copied. Other threads wait for it: at page faults, and in mmap, munmap,
 * mprotect, brk. Faults that need only the lock of their mapping (since Linux 6.4) find
 * it taken too, and then wait for mmap_lock.
 */
SEC("tp_btf/contention_begin")
int on_contention(u64 *ctx)
{
	struct wait_for_fork wait = {};
	struct task_struct *task;
	struct mm_struct *mm;
	struct pending *p;
	u64 owner;
	u32 tid = 0;

	/* LCB_F_READ, LCB_F_WRITE (include/trace/events/lock.h) and nothing else: every
	 * contended lock of the machine passes here. */
	if (ctx[1] != 2 && ctx[1] != 4)
		return 0;
	task = bpf_get_current_task_btf();
	mm = task->mm;
	if (!mm || ctx[0] != (u64)&mm->mmap_lock || !is_watched(task->tgid))
		return 0;
	owner = mm->mmap_lock.owner.counter & ~7ull;
	if (!owner || bpf_probe_read_kernel(&tid, sizeof(tid), &((struct task_struct *)owner)->pid))
		return 0;
	p = bpf_map_lookup_elem(&pending, &tid);
	if (!p || !p->start_ns)
		return 0;
	wait.fork.start_ns = p->start_ns;
	wait.fork.tid = tid;
	wait.since = bpf_ktime_get_ns();
	tid = task->pid;
	bpf_map_update_elem(&behind, &tid, &wait, UPDATE_ANY);
	return 0;
}

SEC("tp_btf/contention_end")
int on_contention_end(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	struct wait_for_fork *wait;
	struct stalls none = {}, *sum;
	struct fork_key key;
	u32 tid = task->pid;

	if (!mm || ctx[0] != (u64)&mm->mmap_lock)
		return 0;
	wait = bpf_map_lookup_elem(&behind, &tid);
	if (!wait)
		return 0;
	key = wait->fork;
	sum = bpf_map_lookup_elem(&stalls, &key);
	if (!sum) {
		bpf_map_update_elem(&stalls, &key, &none, UPDATE_NOEXIST);
		sum = bpf_map_lookup_elem(&stalls, &key);
	}
	if (sum) {
		__sync_fetch_and_add(&sum->threads, 1);
		__sync_fetch_and_add(&sum->ns, bpf_ktime_get_ns() - wait->since);
	}
	bpf_map_delete_elem(&behind, &tid);
	return 0;
}

/* ---- copy-on-write after a fork --------------------------------------------- */

#ifdef HAS_PAGE_FAULT_USER
SEC("tp_btf/page_fault_user")
int on_fault(u64 *ctx)
{
	u64 error = ctx[2];
	struct fault_now *now;
	struct after_fork *after;
	struct creation *c;
	u64 id;
	u32 tgid, zero = 0;

	now = bpf_map_lookup_elem(&faults_now, &zero);
	if (!now)
		return 0;
	/* Later allocations are not for the fault before. */
	now->tid = 0;
	if ((error & 7) != 7) /* present, write, user */
		return 0;
	id = bpf_get_current_pid_tgid();
	tgid = id >> 32;
	after = bpf_map_lookup_elem(&after_forks, &tgid);
	if (after) {
		__sync_fetch_and_add(&after->reused, 1);
		now->child = 0;
	} else {
		c = bpf_map_lookup_elem(&live, &tgid);
		if (!c || c->exec_ns)
			return 0;
		__sync_fetch_and_add(&c->child_reused, 1);
		now->child = tgid;
	}
	now->tid = (u32)id;
	return 0;
}

/* A child that runs on as its creator's program has made a page its own. */
INLINE void eroded(u32 tgid)
{
	struct creation *c = bpf_map_lookup_elem(&live, &tgid);
	struct pt_regs *regs;
	struct erosion_key key = {};
	struct place place = {};
	struct eroded first = { .pages = 1, .next_stack = EROSION_FROM }, *known;
	u64 pages;

	if (!c || c->exec_ns || (c->flags & CLONE_VM))
		return;
	regs = bpf_task_pt_regs(bpf_get_current_task_btf());
	key.ip = ip_of(regs);
	key.image = c->place.image;
	key.tgid = c->place.tgid;
	known = bpf_map_lookup_elem(&erosion, &key);
	if (!known) {
		bpf_map_update_elem(&erosion, &key, &first, UPDATE_ANY);
		return;
	}
	pages = __sync_fetch_and_add(&known->pages, 1) + 1;
	if (pages < known->next_stack)
		return;
	place.ip = key.ip;
	/* The last stack was sent at about half of what was waited for. */
	place.word = pages - known->next_stack / 2;
	place.image = c->place.image;
	place.tgid = key.tgid;
	place.nr = NR_EROSION;
	/* Without room for it the stack is sent with one of the next pages. */
	if (!send_stack(&place, sp_of(regs), fp_of(regs), lr_of(regs), CLASS_EROSION))
		known->next_stack = pages * 2;
}

/* A page allocated while the same thread's write-protect fault is served: the fault
 * was a copy, not a reuse. */
SEC("tp_btf/mm_page_alloc")
int on_page_alloc(u64 *ctx)
{
	u32 zero = 0, tgid;
	struct fault_now *now = bpf_map_lookup_elem(&faults_now, &zero);
	struct after_fork *after;
	struct creation *c;
	u64 id;

	if (!now || !now->tid)
		return 0;
	id = bpf_get_current_pid_tgid();
	if (now->tid != (u32)id)
		return 0;
	now->tid = 0;
	/* The fault was served without a page, and this one is for a system call. */
	if (!in_exception(bpf_task_pt_regs(bpf_get_current_task_btf())))
		return 0;
	tgid = id >> 32;
	eroded(tgid);
	if (now->child) {
		c = bpf_map_lookup_elem(&live, &tgid);
		if (c) {
			__sync_fetch_and_add(&c->child_copied, 1);
			__sync_fetch_and_add(&c->child_reused, -1);
		}
		return 0;
	}
	after = bpf_map_lookup_elem(&after_forks, &tgid);
	if (after) {
		__sync_fetch_and_add(&after->copied, 1);
		__sync_fetch_and_add(&after->reused, -1);
	}
	return 0;
}
#endif
