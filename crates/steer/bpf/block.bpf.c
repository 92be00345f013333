// What a block device does, counted at the block layer's tracepoints: device latency from issue to
// completion by direction and size, and how much is at the array and how much waits for it, in all
// and for each cgroup.
//
// One object for kernels 5.15 and newer: only fields that have kept their names, found by CO-RE at
// load time; BTF raw tracepoints, so no kprobes and no argument offsets. Built by `make bpf`; the
// object is part of the source tree, so that nobody who runs it needs a compiler.
//
// Values are u64 throughout: the reading side sees each as an array of them (src/measure/ebpf.rs).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define CORE __attribute__((preserve_access_index))
#define FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;

enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };

// ---- The kernel's types: the fields that are used -------------------------------------------------

struct gendisk { int major; int first_minor; } CORE;
struct request_queue { struct gendisk *disk; } CORE;
struct block_device { struct gendisk *bd_disk; } CORE;
struct kernfs_node { u64 id; } CORE;
struct cgroup { struct kernfs_node *kn; } CORE;
struct cgroup_subsys_state { struct cgroup *cgroup; } CORE;
struct blkcg { struct cgroup_subsys_state css; } CORE;
struct blkcg_gq { struct blkcg *blkcg; } CORE;
struct bvec_iter { u32 bi_size; } CORE;
struct bio {
	struct block_device *bi_bdev;
	u32 bi_opf;
	struct bvec_iter bi_iter;
	struct blkcg_gq *bi_blkg;
} CORE;
struct request {
	struct request_queue *q;
	u32 cmd_flags;
	u32 __data_len;
	struct bio *bio;
	u64 start_time_ns;
} CORE;

enum { OP_READ = 0, OP_WRITE = 1, OP_MASK = 0xff };
// From here on: commands of the driver and of its users, which no bio asked for.
enum { OP_PRIVATE = 32 };

// ---- What is kept ---------------------------------------------------------------------------------

#define MAP(name, map_type, key_type, value_type, entries)         \
	struct {                                                   \
		int (*type)[map_type];                             \
		int (*max_entries)[entries];                       \
		key_type *key;                                     \
		value_type *value;                                 \
	} name SEC(".maps")

// What a watched device is for: IOs arrive there, or leave there for the array. One that was watched
// until now has only what it had before to complete.
enum { FRONT = 1, LEAF = 2, PAST = 4 };

// Mostly one or two: to go through them takes less than to look one up. Each is a device number and,
// in the lower half, roles.
enum { DEVICES = 64 };
struct watched {
	u64 count;
	// Since when. What had come before then does not count as pending.
	u64 since;
	// Not long ago: some may wait still that had.
	u64 beginning;
	u64 devices[DEVICES];
};

// A request. The kernel has as many as fit into its queues, and uses each again and again: so does this.
struct flight {
	// When; 0 while it is not at the device.
	u64 issued;
	u64 cgroup;
	u32 bytes;
	u16 op;
	u16 roles;
};

// `n` things that came at times with the sum `at`: with departures kept alike, the time integral of
// how many are there is (n_in * T - at_in) - (n_out * T - at_out), modulo 2^64.
struct flow { u64 n; u64 at; };

// `begun` and `ended` count changes: a copy whose `ended` was read before it and whose `begun` was read
// after it, and which are the same, is whole.
struct totals {
	u64 ended;
	struct flow issued;
	struct flow done;
	u64 requeues;
	u64 begun;
};

struct group {
	u64 ended;
	struct flow queued;  // in sectors
	struct flow done;    // in sectors
	u64 ios;
	u64 bytes;
	u64 begun;
};

enum { SIZES = 32, OCTAVES = 32, SLICES = 8, SHORTEST = 10 };
struct class { u64 ios; u64 bytes; u64 ns; };
// By direction.
struct sums {
	struct class classes[2][SIZES];
	// Device latencies: eight slices of each octave of ns from 2^SHORTEST.
	u64 latency[2][OCTAVES * SLICES];
};

MAP(watched, BPF_MAP_TYPE_ARRAY, u32, struct watched, 1);
// Those that are used no more, as after a change of elevator, give way to others.
MAP(flights, BPF_MAP_TYPE_LRU_HASH, u64, struct flight, 16384);
MAP(totals, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct totals, 1);
MAP(sums, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct sums, 1);
// Tasks that came to a device since then.
MAP(came, BPF_MAP_TYPE_LRU_HASH, u32, u32, 4096);
// Cgroup 0, which the reading side puts there, has what finds no room.
MAP(groups, BPF_MAP_TYPE_PERCPU_HASH, u64, struct group, 1024);

// ---- How it is kept -------------------------------------------------------------------------------

// Atomic, though it is this CPU's own: an interrupt may come between reading and writing.
INLINE void add(u64 *sum, u64 n)
{
	__sync_fetch_and_add(sum, n);
}

INLINE void flow(struct flow *f, u64 n, u64 now)
{
	add(&f->n, n);
	add(&f->at, n * now);
}

INLINE u32 log2_of(u64 v)
{
	u32 r = 0;
	if (v >> 32) { v >>= 32; r += 32; }
	if (v >> 16) { v >>= 16; r += 16; }
	if (v >> 8) { v >>= 8; r += 8; }
	if (v >> 4) { v >>= 4; r += 4; }
	if (v >> 2) { v >>= 2; r += 2; }
	return r + (v >> 1);
}

INLINE struct watched *watch(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&watched, &zero);
}

INLINE u32 roles_in(struct watched *w, struct gendisk *disk)
{
	u32 number = (u32)disk->major << 20 | disk->first_minor;
	for (u32 i = 0; i < DEVICES && i < w->count; i++)
		if (w->devices[i] >> 32 == number)
			return (u32)w->devices[i];
	return 0;
}

INLINE u32 roles_of(struct gendisk *disk)
{
	struct watched *w = watch();
	return w ? roles_in(w, disk) : 0;
}

INLINE int moves_data(u32 op)
{
	return op == OP_READ || op == OP_WRITE;
}

INLINE u64 cgroup_of(struct bio *bio)
{
	if (!FIELD_EXISTS(bio->bi_blkg))
		return 0;
	return bio->bi_blkg->blkcg->css.cgroup->kn->id;
}

INLINE struct group *group_of(u64 cgroup)
{
	static const struct group none;
	struct group *group = bpf_map_lookup_elem(&groups, &cgroup);
	if (group)
		return group;
	bpf_map_update_elem(&groups, &cgroup, &none, BPF_NOEXIST);
	group = bpf_map_lookup_elem(&groups, &cgroup);
	if (group)
		return group;
	cgroup = 0;
	return bpf_map_lookup_elem(&groups, &cgroup);
}

INLINE struct totals *totals_of(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&totals, &zero);
}

// A request left the device: done, or given back.
INLINE void leaves(struct flight *flight, u64 now, u64 requeues)
{
	struct totals *t = totals_of();
	if (!(flight->roles & LEAF) || !t)
		return;
	add(&t->begun, 1);
	flow(&t->done, 1, now);
	add(&t->requeues, requeues);
	add(&t->ended, 1);
}

// Bytes that a cgroup waited for, and does not any more.
INLINE void returns(u64 cgroup, u32 bytes, u64 ios, u64 moved, u64 now)
{
	struct group *g = group_of(cgroup);
	if (!g)
		return;
	add(&g->begun, 1);
	flow(&g->done, bytes >> 9, now);
	add(&g->ios, ios);
	add(&g->bytes, moved);
	add(&g->ended, 1);
}

// Where the compiler sees that an index is small, it drops the mask by which the verifier would.
#define MASKED(index, count) ({ u64 i = (index); asm volatile("" : "+r"(i)); i & ((count) - 1); })

INLINE void timed(struct flight *flight, u64 ns)
{
	u32 zero = 0, octave = log2_of(ns), slice = 0;
	struct sums *s = bpf_map_lookup_elem(&sums, &zero);
	u32 way = flight->op & 1;
	if (!s)
		return;
	struct class *class = &s->classes[way][MASKED(log2_of(flight->bytes), SIZES)];
	add(&class->ios, 1);
	add(&class->bytes, flight->bytes);
	add(&class->ns, ns);
	if (octave >= SHORTEST + OCTAVES)
		slice = OCTAVES * SLICES - 1;
	else if (octave >= SHORTEST)
		slice = (octave - SHORTEST) * SLICES + ((ns >> (octave - 3)) & (SLICES - 1));
	add(&s->latency[way][MASKED(slice, OCTAVES * SLICES)], 1);
}

// ---- The tracepoints ------------------------------------------------------------------------------

INLINE void comes(struct bio *bio)
{
	struct group *g = group_of(cgroup_of(bio));
	if (!g)
		return;
	add(&g->begun, 1);
	flow(&g->queued, bio->bi_iter.bi_size >> 9, bpf_ktime_get_ns());
	add(&g->ended, 1);
}

// A VM's IO comes to a device. (What io.max holds back has not come yet.)
SEC("tp_btf/block_bio_queue")
int bio_queue(u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[0];
	struct watched *w = watch();
	if (!w || !moves_data(bio->bi_opf & OP_MASK) || !(roles_in(w, bio->bi_bdev->bd_disk) & FRONT))
		return 0;
	if (w->beginning) {
		u32 task = bpf_get_current_pid_tgid();
		if (!bpf_map_lookup_elem(&came, &task))
			bpf_map_update_elem(&came, &task, &task, BPF_ANY);
	}
	comes(bio);
	return 0;
}

// A request is found for it. If it had to wait for one since before we began, this is when it comes:
// its task cannot have submitted anything since. Attached only in the beginning.
SEC("tp_btf/block_getrq")
int bio_getrq(u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[0];
	u32 task = bpf_get_current_pid_tgid();
	if (!moves_data(bio->bi_opf & OP_MASK) || !(roles_of(bio->bi_bdev->bd_disk) & FRONT))
		return 0;
	if (bpf_map_lookup_elem(&came, &task))
		return 0;
	bpf_map_update_elem(&came, &task, &task, BPF_ANY);
	comes(bio);
	return 0;
}

// A bio ends that no request did: where the front makes requests, one that failed or would have had
// to wait (REQ_NOWAIT). What requests complete is not traced here.
SEC("tp_btf/block_bio_complete")
int bio_complete(u64 *ctx)
{
	struct bio *bio = (struct bio *)ctx[1];
	if (!moves_data(bio->bi_opf & OP_MASK) || !(roles_of(bio->bi_bdev->bd_disk) & FRONT))
		return 0;
	returns(cgroup_of(bio), bio->bi_iter.bi_size, 0, 0, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/block_rq_issue")
int rq_issue(u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	u64 key = (u64)rq;
	u32 op = rq->cmd_flags & OP_MASK;
	if (op >= OP_PRIVATE)
		return 0;
	struct watched *w = watch();
	u32 roles = w ? roles_in(w, rq->q->disk) & (FRONT | LEAF) : 0;
	if (!roles)
		return 0;
	u64 now = bpf_ktime_get_ns();
	// It came before we began. (0 where the kernel does not keep it.)
	u64 made = rq->start_time_ns;
	if (made && made < w->since)
		roles &= ~FRONT;
	struct flight flight = {
		.issued = now,
		.cgroup = roles & FRONT ? cgroup_of(rq->bio) : 0,
		.bytes = rq->__data_len,
		.op = op,
		.roles = roles,
	};
	struct flight *found = bpf_map_lookup_elem(&flights, &key);
	if (found) {
		if (found->issued) {
			// Its last completion was missed, in an interrupt of this same program's.
			leaves(found, now, 0);
			if (found->roles & FRONT && moves_data(found->op))
				returns(found->cgroup, found->bytes, 0, 0, now);
		}
		*found = flight;
	} else if (bpf_map_update_elem(&flights, &key, &flight, BPF_ANY)) {
		return 0;
	}
	struct totals *t = totals_of();
	if (!(roles & LEAF) || !t)
		return 0;
	add(&t->begun, 1);
	flow(&t->issued, 1, now);
	add(&t->ended, 1);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int rq_complete(u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	u32 bytes = ctx[2];
	u64 key = (u64)rq;
	if (!roles_of(rq->q->disk))
		return 0;
	struct flight *flight = bpf_map_lookup_elem(&flights, &key);
	if (!flight || !flight->issued)
		return 0;
	u64 now = bpf_ktime_get_ns();
	int data = moves_data(flight->op);
	// Some drivers complete a request in parts.
	int whole = bytes >= rq->__data_len;
	if (data && flight->roles & FRONT)
		returns(flight->cgroup, bytes, whole, bytes, now);
	if (!whole)
		return 0;
	leaves(flight, now, 0);
	if (data && flight->roles & LEAF)
		timed(flight, now - flight->issued);
	flight->issued = 0;
	return 0;
}

// The device gives a request back undone. It still is pending.
SEC("tp_btf/block_rq_requeue")
int rq_requeue(u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	u64 key = (u64)rq;
	if (!roles_of(rq->q->disk))
		return 0;
	struct flight *flight = bpf_map_lookup_elem(&flights, &key);
	if (!flight || !flight->issued)
		return 0;
	leaves(flight, bpf_ktime_get_ns(), 1);
	flight->issued = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
// Of this file, and what built it: a test holds the object to its source by them.
char SOURCE_SUM[] SEC("source") = SOURCE;
char COMPILER[] SEC("compiler") = __clang_version__;
