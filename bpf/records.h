/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel side's records for the user side. Mirrored field by field in
 * crates/forkless-diagnose/src/ring.rs; the loader refuses a map whose value size
 * differs from the mirror's. All times are CLOCK_MONOTONIC nanoseconds, 0 = did not
 * happen (yet). Explicit padding only: the records are compared as bytes.
 */
#pragma once
#include "helpers.h"

enum { PATH_BYTES = 128, ARGV_BYTES = 384, STACK_BYTES = 8192 };
enum { LOOK_WORDS = 2, LOOK_FRAMES = 32, FRAME_BYTES = 120, STRUCTURE_BYTES = 64 };

/* record kinds in the ring */
enum { KIND_CREATION = 1, KIND_STACK = 2, KIND_PROGRAM = 3, KIND_REFUSED = 4, KIND_CALLER = 5 };

/* creation.state */
enum {
	STATE_RETURNED = 1, /* the caller left the system call */
	STATE_EXITED = 2,   /* the child is gone */
};

/*
 * A place that makes a system call. `word` is the return address that libc's function
 * has on the stack, where the user side has told where that is (struct return_at). Else
 * it is the first word on the stack that points into the main program's text. Both tell
 * two callers of one libc function apart without unwinding. It is 0 for system calls
 * that create nothing. `image` tells the programs apart that the process has been: the
 * address of its arguments, which each exec draws anew.
 */
struct place {
	u64 ip;
	u64 word;
	u64 image;
	u32 tgid;
	u32 nr;
};

/* Key of `returns`: a system call of libc's in a process. */
struct return_key {
	u64 ip;
	u32 tgid;
	u32 pad;
};

/* Where libc's function that makes the call has its return address. The user side finds
 * it by unwinding the first stack. */
struct return_at {
	u64 image;    /* as in struct place */
	u64 above_sp; /* bytes */
	u64 low;      /* the code that it points into */
	u64 high;
};

/* One process creation, from the system call to the child's exit. */
struct creation {
	u32 kind;
	u32 state;
	u64 start_ns;    /* the caller entered the system call */
	u64 copied_ns;   /* copy_process was done */
	u64 returned_ns; /* the caller ran on */
	u64 exec_enter_ns; /* the child's successful (else last) execve began */
	u64 exec_ns;     /* the new program was in place */
	u64 exit_ns;
	u64 flags;       /* clone flags, exit signal not included */
	u64 cgroup;      /* the caller's, in the unified hierarchy */
	struct place place;
	/* the caller's memory at the call, in base pages and bytes */
	u64 anon_pages;
	u64 file_pages;
	u64 shmem_pages;
	u64 swap_pages;
	u64 hugetlb_pages;
	u64 pgtables_bytes;
	/* write-protect faults of the child before its exec */
	u64 child_copied;
	u64 child_reused;
	/* threads and processes that the child made before its exec */
	u64 child_made;
	/* in the child's loop of closes before its exec: see answered_close() */
	u64 closing_ns;
	u64 closes;           /* that the library would answer */
	u64 close_ns;         /* the last call of the loop */
	u64 close_migrations; /* the thread's, at that call */
	u32 close_number;     /* of that call */
	u32 close_streak;     /* calls for neighbours, one after the other; CLOSES_KNOWN */
	/* threads of the caller that waited for its memory map meanwhile, and their sum */
	u64 stalled;
	u64 stalled_ns;
	u32 caller_tid;
	u32 child;
	u32 exec_tid; /* the thread that ran execve */
	s32 exit_code; /* as wait(2) reports it */
	u32 execs;      /* that succeeded; the fields above and below tell the first */
	u32 exec_tries;
	u32 exec_missing;  /* ENOENT or ENOTDIR */
	u32 exec_busy;     /* ETXTBSY */
	u32 exec_other;
	s32 exec_errno;    /* of the last failure */
	u32 argv_bytes;
	u32 uid; /* the caller's real one, in the initial user namespace */
	/* The system call that the creating thread was in when the child's exec began and when
	 * the child ended, plus one; 0 for none, and where that is not known. */
	u32 caller_at_exec;
	u32 caller_at_exit;
	u64 argument_at_exec; /* the first of the former */
	u64 processor_wait_ns; /* of the child's last thread: it could run, and others ran */
	u64 asked; /* as in the struct caller that was sent for it; 0 for none */
	char caller_comm[16];
	char child_comm[16];
	char exec_path[PATH_BYTES];
	char failed_path[PATH_BYTES];
	char argv[ARGV_BYTES]; /* NUL-separated */
};

/* The top of a user stack at a system call, for unwinding by .eh_frame. */
struct stack {
	u32 kind;
	u32 bytes;
	struct place place;
	u64 ns;
	u64 sp;
	u64 fp; /* frame pointer */
	u64 lr; /* link register, 0 where there is none */
	u32 tid;
	u32 class;
	u64 stands_for; /* creations of its place: CLASS_CREATION */
	u8 top[STACK_BYTES];
};

/*
 * Key of `looks` is a thread: where its interpreter has its frames. The user side tells it when
 * it has found the interpreter.
 */
struct look {
	u64 image;   /* as in struct place */
	u64 head;    /* address of the pointer to the first frame, or to a structure that has it */
	u64 through; /* offset of that pointer in the structure; NOT_THERE without a structure */
	u64 next;    /* offset, in a frame, of the pointer to the next one; NOT_THERE: they are an array */
	u64 stride;  /* of the array */
	u64 last;    /* offset, in the structure, of the innermost frame's index in an array that begins
		      * with the outermost one; NOT_THERE: the array begins with the innermost one */
	u64 word[LOOK_WORDS]; /* addresses of words that are wanted as well, or 0 */
};
#define NOT_THERE (~0ull)

struct frame_seen {
	u64 at;
	u8 bytes[FRAME_BYTES];
};

/*
 * A creation that is about to be made: what its caller's interpreter runs is to be read now. The
 * caller may run on before it is read, so that the memory which changes then is in here.
 */
struct caller {
	u32 kind;
	u32 tgid;
	u64 sp;
	u64 stands_for; /* creations of its place, this one included */
	u64 asked;      /* the time; with the thread's number it tells the creation */
	u32 tid;
	u32 frames;     /* that were seen; 0 where no look was told */
	u64 first;      /* the word at look.head */
	u64 word[LOOK_WORDS];
	u8 structure[STRUCTURE_BYTES];
	struct frame_seen frame[LOOK_FRAMES];
};

/*
 * The program that a creating process is: sent at the first creation after an exec, and
 * again when the process has renamed itself. By the time its creation is reported, the
 * process may have become another program.
 */
struct program {
	u32 kind;
	u32 tgid;
	u64 image;
	u32 argv_bytes;
	u32 pad;
	char comm[16];         /* the thread leader's */
	char path[PATH_BYTES]; /* as execve got it: the script, for a script */
	char argv[ARGV_BYTES]; /* NUL-separated */
};

/* Key of `refusals`: a place whose creations fail with this error. */
struct refusal_key {
	struct place place;
	u32 error; /* EAGAIN or ENOMEM */
	u16 is_thread;
	u16 shares_memory; /* so that nothing is copied */
};

struct refusals {
	u64 count;
	u64 timed; /* those that `ns` is the time of */
	u64 ns;
};

/*
 * A creation that the kernel has refused, with the limits as they are in the kernel at
 * that moment: sent for the 1st, 2nd, 4th, 8th ... of a key. A limit of 0 is none that
 * was reached, or not known.
 */
struct refused {
	u32 kind;
	u32 uid; /* real, in the initial user namespace */
	struct refusal_key key;
	u64 capabilities; /* effective */
	u64 user_limit;   /* RLIMIT_NPROC */
	u64 user_count;   /* what it counts for this user, ~0 where it is not known */
	u64 pids_limit;   /* pids.max of the first cgroup upwards that is full */
	u64 pids_cgroup;  /* the inode of its directory */
	u64 data_pages;   /* the caller's private writable memory */
	u64 cgroup;       /* the caller's, in the unified hierarchy */
	u32 no_init;      /* the pid namespace of its children has lost its first process */
	u32 tid;
	char comm[16];
};

/* Write-protect faults of a process that has forked in full, since that fork. */
struct after_fork {
	u64 copied;
	u64 reused;
};

/* Class of a system call (key of `calls`), and of a stack. */
enum {
	CLASS_ANY = 0,
	CLASS_SIGMASK_NEEDLESS = 1,
	CLASS_LOCALTIME = 2,
	CLASS_ZONEINFO = 3,
	CLASS_CLOSE_UNUSED = 4,
	CLASS_BLOCK_WRITE_PARTIAL = 5,
	CLASS_CREATION = 6, /* stacks only */
	CLASS_EROSION = 7,  /* stacks only: of a child that made pages private */
};

/* The number that such a stack has in place of a system call's. Its place's word is the pages that
 * were made private there since the last stack: so many does the stack stand for. */
#define NR_EROSION 0xfffffffeu

/* Key of `erosion`: an instruction of the children of a process. A fork leaves all code
 * where it was, so the creator's mappings tell what it belongs to. */
struct erosion_key {
	u64 ip;
	u64 image; /* the creator's, as in struct place */
	u32 tgid;  /* the creator */
	u32 pad;
};

struct eroded {
	u64 pages;
	u64 next_stack; /* at so many pages the stack is sent */
};

struct call_key {
	u64 ip;
	u64 image; /* as in struct place */
	u32 tgid;
	u16 nr;
	u16 class;
};

struct call {
	u64 count;
	u64 same;      /* results equal to the one before on this CPU */
	s64 last;
	u64 bytes;     /* written, for writes; of CLASS_CLOSE_UNUSED: answered_close() */
};

/* Reads that a process's own partial writes to block devices made it wait for. */
struct block_reads {
	u64 reads;
	u64 timed; /* those whose waiting was seen from its beginning to its end */
	u64 ns;    /* from the read's submission until the writer ran again, of the timed */
};

struct totals {
	u64 creations;
	u64 threads;
	u64 ring_full;   /* records that did not fit into the ring */
	u64 live_full;   /* creations that did not fit into `live`, children that did not into `watched` */
	u64 calls_full;  /* system calls that did not fit into `calls` */
	u64 stacks_skipped; /* stacks above the rate limit */
};
