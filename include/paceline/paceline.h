/* Paceline: collective communication for distributed training and HPC.  The public C API, plain C99.
 *
 * The arguments stand in NCCL's order, so that porting is renaming. Counts are in elements, sizes in bytes, times in
 * seconds unless a name says otherwise. Every function but those that give text returns a paceResult_t; after an error
 * paceGetLastError() gives the sentence that says what happened, to which rank, and what to do. No function blocks for
 * ever: after the communicator's timeout a call returns an error that names the rank that held it up.
 *
 * Buffers are host memory or GPU memory, all of a call of one kind. With host memory `stream` is NULL for a blocking
 * call, or a paceHostStream_t for an asynchronous one. Calls on a communicator keep their order: a blocking one,
 * paceCommSplit and paceCommDestroy first wait until its calls that are queued on streams have ended.
 *
 * With GPU memory `stream` is a cudaStream_t (NULL: the default stream), and a call returns when it has been launched;
 * it can be captured into a graph. A rank uses the GPU that was current when the communicator was made or, where the
 * program had not used any GPU by then, at its first call with GPU memory, which all ranks must make. Buffers in the
 * memory of another GPU are paceInvalidArgument, but for managed memory, and for memory that the rank's GPU reaches
 * where `stream` was made on the rank's GPU. What goes wrong on the GPU is told by paceCommGetAsyncError and by the
 * next call; results are valid only if it is paceSuccess.
 *
 * A call of no elements, or a barrier, has no memory that tells where it belongs. It is on the GPU if `stream` is a
 * CUDA stream (cudaStreamLegacy names the default one, which NULL cannot), or if `stream` is NULL and a buffer is given
 * that is in GPU memory; else on the host. All ranks must have it in the same place.
 *
 * One communicator is used by one thread at a time; a second thread inside a call gets paceInvalidUsage
 * (paceCommAbort and paceCommGetAsyncError may be called from any thread at any time). A signal handler may do neither.
 * A forked child has copies of its parent's communicators, which it can destroy, and nothing else; it may make its own.
 */
#ifndef PACELINE_PACELINE_H_
#define PACELINE_PACELINE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PACE_API __attribute__((visibility("default")))
#else
#define PACE_API
#endif

#define PACE_MAJOR 0
#define PACE_MINOR 1
#define PACE_PATCH 0
/* The version as one number: major * 10000 + minor * 100 + patch. */
#define PACE_VERSION (PACE_MAJOR * 10000 + PACE_MINOR * 100 + PACE_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* What a call returns. The first eight have NCCL's numbers. */
typedef enum {
  paceSuccess = 0,
  paceCudaError = 1,       /* the CUDA runtime refused something */
  paceSystemError = 2,     /* the operating system refused something: memory, descriptors, sockets */
  paceInternalError = 3,   /* a defect of Paceline */
  paceInvalidArgument = 4, /* an argument is out of its range */
  paceInvalidUsage = 5,    /* the call cannot be made now: destroyed communicator, two threads, open group */
  paceRemoteError = 6,     /* another rank died or left */
  paceInProgress = 7,      /* an asynchronous call has not ended yet */
  paceTimeout = 8,         /* a rank did not answer within the timeout */
  paceMismatch = 9,        /* two ranks called different collectives, counts, types, operations or roots, or ran one
                              by different algorithms */
  paceAborted = 10,        /* the communicator was aborted by this or another rank */
  paceUnsupported = 11     /* not available in this build or on this machine */
} paceResult_t;

/* Element types, with NCCL's numbers. */
typedef enum {
  paceInt8 = 0,
  paceUint8 = 1,
  paceInt32 = 2,
  paceUint32 = 3,
  paceInt64 = 4,
  paceUint64 = 5,
  paceFloat16 = 6,
  paceFloat32 = 7,
  paceFloat64 = 8,
  paceBfloat16 = 9,
  paceFloat8e4m3 = 10,
  paceFloat8e5m2 = 11,
  paceNumTypes = 12
} paceDataType_t;

/* Reduction operations, with NCCL's numbers. Values from paceNumOps on are made by paceRedOpCreatePreMulSum.
 * paceAvg is the sum, formed in the type itself, where it may overflow or wrap, then divided, integers towards zero.
 * 16-bit and 8-bit floats are added in float32. */
typedef enum {
  paceSum = 0,
  paceProd = 1,
  paceMax = 2,
  paceMin = 3,
  paceAvg = 4,
  paceNumOps = 5,
  paceMaxRedOp = 0x7fffffff
} paceRedOp_t;

typedef struct paceComm* paceComm_t;
typedef struct paceHostStream* paceHostStream_t;

#define PACE_UNIQUE_ID_BYTES 128
/* Where a communicator's ranks meet, with the secret that admits them: hand it over a private way. */
typedef struct {
  char internal[PACE_UNIQUE_ID_BYTES];
} paceUniqueId;

/* What a communicator can be told at its making. Start from PACE_CONFIG_INITIALIZER. */
typedef struct {
  size_t size;               /* sizeof(paceConfig_t) of the caller: later versions append */
  double timeoutSeconds;     /* longest wait of any call; 0: PACELINE_TIMEOUT */
  const char* algorithm;     /* as paceCommSetAlgorithm takes it; NULL: PACELINE_ALGORITHM, else chosen by cost */
  size_t chunkBytes;         /* longest chunk of pipelined schedules, bytes; 0: PACELINE_CHUNK, else chosen by cost */
  double joinTimeoutSeconds; /* longest wait for the other ranks, to come and to connect each; 0: PACELINE_JOIN_TIMEOUT,
                                of paceCommShrink the timeout of calls if that is longer */
} paceConfig_t;
#define PACE_CONFIG_INITIALIZER \
  { sizeof(paceConfig_t), 0.0, NULL, 0, 0.0 }

/* What would run for one call: see paceExplain. */
typedef struct {
  char algorithm[48]; /* name in the algorithm table */
  char transport[16]; /* "shm", "tcp", "shm+tcp" or "local" */
  size_t chunkBytes;  /* bytes that one step moves at most */
  int channels;       /* independent lanes of the schedule */
  int radix;          /* ranks that meet in a step of a k-nomial tree or of recursive doubling; 0: it has none */
  double predictedMicroseconds;
  char protocol[16]; /* of long messages inside a node: "staged" or "single_copy" */
} pacePlanInfo_t;

/* ---- Version and errors ---- */

/* *version = the library's PACE_VERSION. */
PACE_API paceResult_t paceGetVersion(int* version);
/* The name of a result code; never NULL. */
PACE_API const char* paceGetErrorString(paceResult_t result);
/* The sentence about the last error of `comm`, or of this thread where comm is NULL or destroyed; "no error" before the
 * first. Never NULL; valid until this thread's next call of this library. */
PACE_API const char* paceGetLastError(paceComm_t comm);
/* *rank: whom the same error is about, as the communicator of the call numbers its ranks (a split's perhaps as the new
 * one does): who died, came late or called something else, or this one. -1: no rank. */
PACE_API paceResult_t paceGetLastErrorRank(paceComm_t comm, int* rank);

/* For programs that want signals to end calls, such as interpreters, whose handlers run only between their own steps:
 * calls on the process's first thread ask `interrupted` a few times a second while they wait for other ranks. Where it
 * returns other than 0 the call returns paceAborted, and the communicator has ended on every rank, as by paceCommAbort:
 * nobody can leave a collective alone. It may call this library. NULL: nobody is asked. */
PACE_API paceResult_t paceSetInterrupted(int (*interrupted)(void));

/* ---- Communicators ---- */

/* Make an id, and send it to the ranks by any private way. This process, which may be a rank or none, then listens for
 * them on the interface named by PACELINE_INTERFACE (default: loopback, see docs/launching.md) and must run until all
 * have joined. paceSystemError where it cannot listen, or start a thread. */
PACE_API paceResult_t paceGetUniqueId(paceUniqueId* id);
/* Join a communicator of nranks ranks as number rank, 0 <= rank < nranks. Collective; blocks until all have come, at
 * most joinTimeoutSeconds, and then returns paceTimeout and names those that did not. config may be NULL, and is for
 * paceCommInitRank: the defaults. *comm is written only on success. */
PACE_API paceResult_t paceCommInitRank(paceComm_t* comm, int nranks, paceUniqueId id, int rank);
PACE_API paceResult_t paceCommInitRankConfig(paceComm_t* comm, int nranks, paceUniqueId id, int rank,
                                             const paceConfig_t* config);
/* The same, with rank, size, address and secret from the environment of torchrun, mpirun, srun or `paceline run`;
 * a communicator of one rank where no launcher has set them. config may be NULL. */
PACE_API paceResult_t paceCommInitEnvironment(paceComm_t* comm, const paceConfig_t* config);
/* Communicators of one process, a GPU each: comms[i] is rank i of `count`, on GPU devices[i] (NULL: GPU i). Use them
 * from one thread, with paceGroupStart and paceGroupEnd around the ranks' calls, or from a thread each. On an error
 * none is made. */
PACE_API paceResult_t paceCommInitAll(paceComm_t* comms, int count, const int* devices);
/* Ranks with the same color >= 0 form a new communicator, ordered by key, then by old rank. color < 0
 * (PACE_SPLIT_NOCOLOR) takes part without joining and gets NULL. Collective over `comm`. config may
 * be NULL: the defaults, not what `comm` was told; its joinTimeoutSeconds is ignored. It gets shared memory of its own,
 * which takes some milliseconds a rank to make, less with a small PACELINE_STAGING: split once, not in a loop. */
#define PACE_SPLIT_NOCOLOR (-1)
PACE_API paceResult_t paceCommSplit(paceComm_t comm, int color, int key, paceComm_t* newcomm,
                                    const paceConfig_t* config);
/* The ranks of `comm` but excluded[i], i < count, form a new communicator, in their order, to go on when others have
 * died. Collective over those that stay, who all exclude the same ranks (else paceInvalidUsage, after seconds); none
 * calls it that is excluded. Nothing goes through `comm`: it may have ended, by a death, a timeout or an abort, and is
 * left as it is; another thread's call that ends with it may still be on its way out. Waits for the others, at most
 * joinTimeoutSeconds, but no longer for one that has died (paceRemoteError), nor after paceCommAbort(comm). After an
 * error it can be called again: paceGetLastErrorRank then has the rank's number in `comm`, the sentence its number
 * among those that stay. count may be 0: a new communicator of the same ranks. config may be NULL: the defaults, not
 * what `comm` was told. */
PACE_API paceResult_t paceCommShrink(paceComm_t comm, const int* excluded, int count, paceComm_t* newcomm,
                                     const paceConfig_t* config);
/* Leave, after the calls that are queued on streams. Calls of other ranks that still need this one fail with
 * paceRemoteError. paceMismatch: a message lies here of a call that another rank has made and this one has not, such as
 * a broadcast with another root. The handle is invalid afterwards, unless this returned paceInvalidUsage because
 * another thread is inside a call. */
PACE_API paceResult_t paceCommDestroy(paceComm_t comm);
/* End the communicator on every rank: calls under way return paceAborted within a second. Callable from any thread.
 * The handle stays valid until paceCommDestroy. Once the job's rank 0 has destroyed all its communicators, ranks on
 * other nodes learn of it when this one destroys its own, and calls on GPUs end at their timeout. */
PACE_API paceResult_t paceCommAbort(paceComm_t comm);
/* The communicator's state without waiting for other ranks: paceSuccess, or the error that ended it. Who finds an end
 * that nobody has told of tells the others first, which may take most of a second. Callable from any thread. */
PACE_API paceResult_t paceCommGetAsyncError(paceComm_t comm, paceResult_t* asyncError);
/* How many ranks there are, and this rank's number among them, from 0. */
PACE_API paceResult_t paceCommCount(paceComm_t comm, int* count);
PACE_API paceResult_t paceCommUserRank(paceComm_t comm, int* rank);
/* Ranks of this communicator on this node, and this rank's number among them. */
PACE_API paceResult_t paceCommNodeCount(paceComm_t comm, int* count);
PACE_API paceResult_t paceCommNodeRank(paceComm_t comm, int* rank);
/* Whether the links between the job's machines were measured as it started (1), or it is on one machine (0). */
PACE_API paceResult_t paceCommLinksMeasured(paceComm_t comm, int* measured);
/* Whether calls on GPU memory are made by kernels between the ranks' GPUs (1), or go through host memory (0): because
 * of several nodes, GPUs that do not reach each other or have no room for their ranks' kernels, or a program that has
 * used none of them yet. */
PACE_API paceResult_t paceCommGpuDirect(paceComm_t comm, int* direct);
/* How many calls on GPU memory have read and written the ranks' buffers where they lie, without a window between, since
 * the communicator was made; a graph's replays are counted too. Waits for the calls that were begun. */
PACE_API paceResult_t paceCommGpuDirectCalls(paceComm_t comm, uint64_t* calls);

/* ---- Operators ---- */

/* An operator that multiplies each rank's input by *scalar (one element of `type`, host memory, read now), then
 * sums. Each rank may give another scalar. For calls of this type on this communicator, until it is destroyed. */
PACE_API paceResult_t paceRedOpCreatePreMulSum(paceRedOp_t* op, const void* scalar, paceDataType_t type,
                                               paceComm_t comm);
/* Calls that were made with it keep it. */
PACE_API paceResult_t paceRedOpDestroy(paceRedOp_t op, paceComm_t comm);

/* ---- Collectives: `count` elements of `type`, one after another in memory, the same count on all ranks (what differs
 * from rank to rank goes by sends and receives in a group); in place where said, else buffers that do not overlap.
 * Errors: paceInvalidArgument, paceInvalidUsage, paceMismatch, paceRemoteError, paceTimeout, paceAborted,
 * paceSystemError; with GPU memory also paceCudaError. paceResult_t says of each what it means. ---- */

/* recv[i] = op over all ranks of send[i], i < count. In place: send == recv. */
PACE_API paceResult_t paceAllReduce(const void* send, void* recv, size_t count, paceDataType_t type, paceRedOp_t op,
                                    paceComm_t comm, void* stream);
/* recv[i] of every rank = send[i] of root. send is read on root only. In place: send == recv. */
PACE_API paceResult_t paceBroadcast(const void* send, void* recv, size_t count, paceDataType_t type, int root,
                                    paceComm_t comm, void* stream);
/* As all-reduce, but only root gets recv (others may pass NULL). In place on root: send == recv. */
PACE_API paceResult_t paceReduce(const void* send, void* recv, size_t count, paceDataType_t type, paceRedOp_t op,
                                 int root, paceComm_t comm, void* stream);
/* recv[r * sendcount + i] = send[i] of rank r. In place: send == recv + rank * sendcount. */
PACE_API paceResult_t paceAllGather(const void* send, void* recv, size_t sendcount, paceDataType_t type,
                                    paceComm_t comm, void* stream);
/* recv[i] = op over all ranks of send[rank * recvcount + i]. In place: recv == send + rank * recvcount. */
PACE_API paceResult_t paceReduceScatter(const void* send, void* recv, size_t recvcount, paceDataType_t type,
                                        paceRedOp_t op, paceComm_t comm, void* stream);
/* recv[r * count + i] on root = send[i] of rank r. In place on root: send == recv + root * count. */
PACE_API paceResult_t paceGather(const void* send, void* recv, size_t count, paceDataType_t type, int root,
                                 paceComm_t comm, void* stream);
/* recv[i] of rank r = send[r * count + i] of root. In place on root: recv == send + root * count. */
PACE_API paceResult_t paceScatter(const void* send, void* recv, size_t count, paceDataType_t type, int root,
                                  paceComm_t comm, void* stream);
/* recv[r * count + i] = send[rank * count + i] of rank r. In place: send == recv. */
PACE_API paceResult_t paceAllToAll(const void* send, void* recv, size_t count, paceDataType_t type, paceComm_t comm,
                                   void* stream);
/* Returns when every rank has called it. */
PACE_API paceResult_t paceBarrier(paceComm_t comm, void* stream);

/* ---- Point to point: calls on one communicator are matched in order between two ranks ---- */

/* `count` elements to rank peer, or from it: the same count and type on both sides, else paceMismatch. One of no
 * elements is a message, too: its receiver waits for it. A message to itself needs a group with both. A send returns
 * when its buffer may be used again. Whether that waits for the receiver depends on length and transport: two ranks
 * that both send first, and receive then, may wait for each other, until their timeout. In a group they do not. */
PACE_API paceResult_t paceSend(const void* send, size_t count, paceDataType_t type, int peer, paceComm_t comm,
                               void* stream);
PACE_API paceResult_t paceRecv(void* recv, size_t count, paceDataType_t type, int peer, paceComm_t comm, void* stream);
/* Calls between start and end (of this thread, on any communicators) begin at the outermost end, which waits for those
 * without a stream. On each communicator the sends and receives come first, all together and in any order among each
 * other, then the collectives, one after another; ranks that make the same calls without a group must make them in
 * this order. No communicator waits for another one's calls in the group, unless they are on one CUDA stream: none may
 * write what those of another one read or write. All wait for what was queued on streams before, for any of them, and
 * where some communicators have their first call on GPU memory, for their ranks to meet. On GPU memory a
 * communicator's calls go together on whatever streams they are: they begin when all before them on these has ended,
 * and what follows on these comes after all; a second message from one rank to another begins only when the group's
 * first message between every two ranks has ended. A group whose call fails its checks starts nothing; one that fails
 * later ends each communicator whose part is not done. What a message receives has a place that no other of the group
 * reads or writes: on one communicator and host memory paceInvalidArgument. Of a message to itself both ends may be
 * one place. Where several communicators have ended, paceGroupEnd returns the error of the first one in the order of
 * the calls; each one's own is its last error, with ranks as it numbers them. Groups nest. */
PACE_API paceResult_t paceGroupStart(void);
PACE_API paceResult_t paceGroupEnd(void);

/* ---- Host streams: asynchronous calls ---- */

/* A queue of calls, run in order by a thread of its own. Pass it as `stream`. */
PACE_API paceResult_t paceHostStreamCreate(paceHostStream_t* stream);
/* Wait for every call queued so far; returns the first error among them since the last synchronize. */
PACE_API paceResult_t paceHostStreamSynchronize(paceHostStream_t stream);
/* paceInProgress while calls are queued or running, else as synchronize. */
PACE_API paceResult_t paceHostStreamQuery(paceHostStream_t stream);
/* How many calls were queued so far: a mark for paceHostStreamWait. A group's calls count as one, at its end. */
PACE_API paceResult_t paceHostStreamMark(paceHostStream_t stream, uint64_t* mark);
/* Wait for the calls up to a mark, not for those behind it, at most `seconds` (negative: until they end):
 * paceInProgress when the time is up, else the first error among them since the last synchronize or query, which this
 * leaves in place. */
PACE_API paceResult_t paceHostStreamWait(paceHostStream_t stream, uint64_t mark, double seconds);
/* How one call ended: the one that made paceHostStreamMark give `number`. paceInProgress: it has not ended. paceSuccess
 * also after a synchronize or query, which has told the errors. Does not wait. */
PACE_API paceResult_t paceHostStreamResult(paceHostStream_t stream, uint64_t number);
/* Waits for queued calls, and for threads that wait for these, then ends the thread. paceInvalidUsage: this thread's
 * open group has calls for the stream, which stays. */
PACE_API paceResult_t paceHostStreamDestroy(paceHostStream_t stream);

/* ---- Memory that other ranks of the node can read directly ---- */

/* Host memory of bytes >= 1, aligned to pages and zero, that ranks of this node reach without a copy in between;
 * paceSystemError where there is none left. A forked child shares it with its parent: what one writes, the other
 * sees. */
PACE_API paceResult_t paceMemAlloc(void** ptr, size_t bytes);
/* What paceMemAlloc gave, which no call may still use; NULL does nothing. */
PACE_API paceResult_t paceMemFree(void* ptr);

/* ---- Insight ---- */

/* What a call would run: the plan for `collective` ("all_reduce", "broadcast", ...) of `count` elements, counted as
 * in that collective's call, on host memory. */
PACE_API paceResult_t paceExplain(paceComm_t comm, const char* collective, size_t count, paceDataType_t type,
                                  paceRedOp_t op, int root, pacePlanInfo_t* info);
/* Force an algorithm by name wherever it applies, from the next call on (the same on every rank, else that call is
 * paceMismatch); NULL: choose. After the name may stand "chunk=BYTES", its longest chunk, "radix=K", the ranks that
 * meet in a step of a k-nomial tree or of recursive doubling, and "protocol=staged" or "protocol=single_copy", the way
 * of long messages inside a node: "ring chunk=65536", "knomial radix=8". paceInvalidArgument for a name that is not in
 * the table. */
PACE_API paceResult_t paceCommSetAlgorithm(paceComm_t comm, const char* algorithm);
/* The algorithm table, the configuration table or the build as JSON text: which = "algorithms", "configuration",
 * "build" ("topology" of an algorithm: it goes by one, see PACELINE_TOPOLOGY); "cuda": {"devices"} where calls on GPU
 * memory can be made, else NULL. Valid for the life of the process. NULL for another name. */
PACE_API const char* paceDescribe(const char* which);
/* Times measured on this communicator, made a setting of a profile (JSON text; fields: docs/tuning.md, The file).
 * `measured`: [{"collective", "algorithm", "chunk", "radix", "protocol", "points": [[bytes, microseconds], ...]}, ...],
 * sizes ascending, float32; chunk, radix and protocol where they were forced.
 * fits != 0: the cost model's constants are fitted to the times (or are those of the links that were measured when the
 * job started, where these are slower than a CPU can send); 0: the table of the fastest algorithms is made.
 * *setting is valid until this thread's next call. */
PACE_API paceResult_t paceTune(paceComm_t comm, const char* measured, int fits, const char** setting);
/* Choose by this profile (JSON text, the same on every rank) from the next call on; NULL: by the model alone. */
PACE_API paceResult_t paceCommSetTuning(paceComm_t comm, const char* profile);
/* Whether communicators on this machine would use this profile if their file held it: paceInvalidArgument where they
 * would not; paceGetLastError(NULL) says why. */
PACE_API paceResult_t paceCheckTuning(const char* profile);
/* How calls on GPU memory are launched, as JSON text: a GPU setting of a profile (fields: docs/tuning.md, The file)
 * with all rows of the table that counts, and "source": "measured" (by the profile), "shipped" or "rules".
 * paceUnsupported where calls go through host memory (paceCommGpuDirect). *table is valid until this thread's next
 * call. */
PACE_API paceResult_t paceCommGpuTable(paceComm_t comm, const char** table);
/* JSON text: {"path": where this machine's profile is looked for (PACELINE_TUNING), "fingerprint", "version"}. */
PACE_API const char* paceTuningFile(void);
/* A topology and what can be reached on it, as JSON text. `request` is a JSON object, all of its fields optional:
 *   "preset": name of a known machine or cluster, "nodes": how many of its nodes;
 *   "file": text of a cluster file;  "nccl_xml": text of NCCL's topology XML;  none of the three: this machine;
 *   "gpus": the GPUs' numbers that the collectives run on, or "placement": their order, as pacePredict has it (default:
 *   all, in their order);
 *   "nccl_xml_out": true to have the topology as NCCL's XML too.
 * The answer has "vertices", "links", "gpus", "broadcast_gbs" (from the worst root), "worst_root", "all_gather_gbs",
 * "reduce_scatter_gbs" and "all_reduce_busbw_gbs" (busbw; of an all-reduce that is a reduce-scatter and then an
 * all-gather), "rings", "ring_gbs" and "rings_exact" (no others would be faster), "trees", "chain" and "nccl_rings"
 * (XML; null where the GPUs are of several nodes), and "nccl_xml" where it was asked for; where it has no GPU,
 * all but the graph is null. Where "chain" is null for none passes all GPUs, or none was found, "no_chain" says so;
 * where "trees" is null for some switch does not get as much as it gives, "no_trees". Beyond 128 GPUs bounds and chain
 * are null, beyond 64, and beyond 2,000 vertices of the part that the GPUs use, rings and trees: "left_out" names them.
 * It is valid until this thread's next call of paceTopology. */
PACE_API paceResult_t paceTopology(const char* request, const char** answer);
/* What a collective would take on a topology that need not be here, by each algorithm, as JSON text. `request` is a
 * JSON object: "collective", "sizes" (bytes, as in `paceline bench`), "dtype" ("float32"), "root" (0); the topology as
 * for paceTopology ("preset" and "nodes", "file", "nccl_xml", or this machine); "gpus": rank r runs on GPU gpus[r], or
 * "placement": ranks go to the GPUs in their order ("gpu", the default) or in turn to the sockets ("socket") or nodes
 * ("node"), "ranks": to the first so many of them; "profile" (text of a profile of `paceline tune`, with "transport")
 * or "model" (a cost model's members) instead of a topology, with "ranks"; "algorithm": one by name ("all"),
 * "chunk_bytes": the longest chunk, "radix": of algorithms that have one, "sources": broadcasts at once, "servers": of
 * a reduction server; "machine": what takes time beside the links: "start_us" of a message (0.5), "delay_us" of its
 * arrival (2), "step_us", "send_gbs", "take_gbs", "reduce_gbs", "copy_gbs" of the ranks themselves, "ports":
 * "connections" or "one", "multicast", and how many times as long (10^-6 to 10^6) it takes on "slow_gpus" ({"3": 2})
 * and "slow_links" ({"gpu0 -> switch0": 2}); "links": what goes over each link, too; "detail": for one algorithm at
 * one size, the links and the timeline. The answer has "collective", "ranks", "rows" ("algorithm", "asked_bytes" (the
 * request's size), "bytes" (of whole elements), "count", "chunk_bytes" (the longest message that is simulated; by a
 * model, what longer ones are cut into; 0 where there is none), "radix" (0: none), "own_chunk_bytes" (the algorithm's,
 * where longer ones are simulated; else null), "time_us", "algbw_gbs", "busbw_gbs", "method" ("simulated", "formula",
 * "model", or the model, corrected by what was measured: "measured" inside of that, "estimated" beyond),
 * "busiest_link", "busiest_share", if asked for "links" ("from", "to", "gbs", "bytes", "share"; null: not simulated,
 * or one part's ranks stood for all)), "left_out" (why an algorithm has no row), in detail "trace" (Chrome's format).
 * It is valid until this thread's next call of pacePredict. */
PACE_API paceResult_t pacePredict(const char* request, const char** answer);
/* Record what each step of the following calls did and when, until paceTraceStop writes this rank's events, Chrome
 * trace JSON (an array of events, microseconds of the system clock), to `path`. While one is open, another one of the
 * same communicator is refused (paceInvalidUsage), and the open one goes on. */
PACE_API paceResult_t paceTraceStart(paceComm_t comm);
PACE_API paceResult_t paceTraceStop(paceComm_t comm, const char* path);

#ifdef __cplusplus
}
#endif

#endif /* PACELINE_PACELINE_H_ */
