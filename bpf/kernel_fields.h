/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's structures, with only the fields that are read. The loader relocates their
 * offsets. */
#ifndef VRAMPROF_KERNEL_FIELDS_H
#define VRAMPROF_KERNEL_FIELDS_H

#include "unwinder_defs.h"

#define CORE __attribute__((preserve_access_index))
#define READ(destination, pointer, field) bpf_probe_read_kernel(&(destination), sizeof(destination), &(pointer)->field)

struct qstr {
	const unsigned char *name;
} CORE;
struct dentry {
	struct qstr d_name;
} CORE;
struct path {
	struct dentry *dentry;
} CORE;
struct super_block {
	u32 s_dev;
} CORE;
struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	long long i_size;
} CORE;
struct file {
	struct inode *f_inode;
	struct path f_path;
} CORE;
struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags, vm_pgoff;
	struct file *vm_file;
} CORE;
struct atomic_int {
	int counter;
};
struct signal_struct {
	struct atomic_int live;
} CORE;
typedef struct {
	void *vdso;
} CORE mm_context_t;
struct mm_struct {
	void *pgd;
	struct file *exe_file;
	mm_context_t context;
} CORE;
struct return_instance {
	unsigned long stack, orig_ret_vaddr;
	struct return_instance *next;
} CORE;
struct uprobe_task {
	struct return_instance *return_instances;
} CORE;
struct task_struct {
	int pid, tgid;
	struct mm_struct *mm;
	struct signal_struct *signal;
	unsigned long nvcsw, nivcsw;
	struct uprobe_task *utask;
} CORE;
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id, seq_num;
} CORE;
struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
} CORE;

#endif
