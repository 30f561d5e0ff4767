// NCCL's API, versions 2.28 to 2.30, in our own words: its types, and its functions as lists that declare, load, export
// and describe them. tests/python/test_nccl_api.py compares all of it with NVIDIA's headers.
//
// A row of a list: the version that first had the function (its NCCL_VERSION_CODE), result, name, parameters,
// arguments.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

struct CUstream_st;
using cudaStream_t = CUstream_st*;

extern "C" {

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef struct ncclParamHandle* ncclParamHandle_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,  // since 2.30
  ncclNumResults = 9
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1
#define NCCL_REVOKE_DEFAULT 0
#define NCCL_API_MAGIC 0xcafebeef

// Callers of older versions pass fewer fields: `size` says how many bytes there are.
typedef struct ncclConfig_v23000 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;  // the last of 2.28
  int graphUsageMode;      // since 2.29
  int numRmaCtx;
  int maxP2pPeers;  // since 2.30
  int graphStreamOrdering;
} ncclConfig_t;

typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
} ncclSimInfo_t;

typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

// The device API's types. What is only pointed to stays opaque: its size changes between versions.
typedef struct ncclTeam {
  int nRanks, rank, stride;
} ncclTeam_t;
typedef struct ncclMultimemHandle {
  void* mcBasePtr;
} ncclMultimemHandle_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclCommProperties ncclCommProperties_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;

}  // extern "C"

// Collectives, messages and groups: calls.cc.
#define PACE_NCCL_CALLS(X)                                                                                             \
  X(22800, ncclResult_t, ncclAllReduce,                                                                                \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                 \
     cudaStream_t stream),                                                                                             \
    (send, recv, count, type, op, comm, stream))                                                                       \
  X(22800, ncclResult_t, ncclBroadcast,                                                                                \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream), \
    (send, recv, count, type, root, comm, stream))                                                                     \
  X(22800, ncclResult_t, ncclBcast,                                                                                    \
    (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),                 \
    (buffer, count, type, root, comm, stream))                                                                         \
  X(22800, ncclResult_t, ncclReduce,                                                                                   \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,       \
     cudaStream_t stream),                                                                                             \
    (send, recv, count, type, op, root, comm, stream))                                                                 \
  X(22800, ncclResult_t, ncclAllGather,                                                                                \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),           \
    (send, recv, count, type, comm, stream))                                                                           \
  X(22800, ncclResult_t, ncclReduceScatter,                                                                            \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                 \
     cudaStream_t stream),                                                                                             \
    (send, recv, count, type, op, comm, stream))                                                                       \
  X(22800, ncclResult_t, ncclGather,                                                                                   \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream), \
    (send, recv, count, type, root, comm, stream))                                                                     \
  X(22800, ncclResult_t, ncclScatter,                                                                                  \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream), \
    (send, recv, count, type, root, comm, stream))                                                                     \
  X(22800, ncclResult_t, ncclAlltoAll,                                                                                 \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),           \
    (send, recv, count, type, comm, stream))                                                                           \
  X(22800, ncclResult_t, ncclSend,                                                                                     \
    (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),             \
    (send, count, type, peer, comm, stream))                                                                           \
  X(22800, ncclResult_t, ncclRecv,                                                                                     \
    (void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),                   \
    (recv, count, type, peer, comm, stream))

#define PACE_NCCL_GROUPS(X)                      \
  X(22800, ncclResult_t, ncclGroupStart, (), ()) \
  X(22800, ncclResult_t, ncclGroupEnd, (), ())   \
  X(22800, ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info), (info))

// Making communicators: making.cc. Their state and end, operators, registrations: life.cc.
#define PACE_NCCL_BIRTHS(X)                                                                                            \
  X(22800, ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))                                                   \
  X(22800, ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank),                  \
    (comm, ranks, id, rank))                                                                                           \
  X(22800, ncclResult_t, ncclCommInitRankConfig,                                                                       \
    (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config), (comm, ranks, id, rank, config))  \
  X(22800, ncclResult_t, ncclCommInitRankScalable,                                                                     \
    (ncclComm_t * comm, int ranks, int rank, int ids, ncclUniqueId* id, ncclConfig_t* config),                         \
    (comm, ranks, rank, ids, id, config))                                                                              \
  X(22800, ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int devices, const int* device),                        \
    (comms, devices, device))                                                                                          \
  X(22800, ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config), \
    (comm, color, key, made, config))                                                                                  \
  X(22800, ncclResult_t, ncclCommShrink,                                                                               \
    (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config, int flags),                    \
    (comm, excluded, count, made, config, flags))                                                                      \
  X(22900, ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId * id), (comm, id))                        \
  X(22900, ncclResult_t, ncclCommGrow,                                                                                 \
    (ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* made, ncclConfig_t* config),            \
    (comm, ranks, id, rank, made, config))

#define PACE_NCCL_LIFE(X)                                                                                    \
  X(22800, ncclResult_t, ncclCommFinalize, (ncclComm_t comm), (comm))                                        \
  X(22800, ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))                                         \
  X(22800, ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))                                           \
  X(22800, ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags), (comm, flags))                        \
  X(22800, ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error), (comm, error))      \
  X(22800, ncclResult_t, ncclCommCount, (ncclComm_t comm, int* count), (comm, count))                        \
  X(22800, ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int* device), (comm, device))                   \
  X(22800, ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int* rank), (comm, rank))                       \
  X(22800, ncclTeam_t, ncclTeamWorld, (ncclComm_t comm), (comm))                                             \
  X(22900, ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags), (comm, flags))                       \
  X(22900, ncclResult_t, ncclCommResume, (ncclComm_t comm), (comm))                                          \
  X(22900, ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t * value),      \
    (comm, stat, value))                                                                                     \
  X(22800, ncclResult_t, ncclCommRegister, (ncclComm_t comm, void* buffer, size_t bytes, void** handle),     \
    (comm, buffer, bytes, handle))                                                                           \
  X(22800, ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void* handle), (comm, handle))                \
  X(22800, ncclResult_t, ncclRedOpCreatePreMulSum,                                                           \
    (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm), \
    (op, scalar, type, residence, comm))                                                                     \
  X(22800, ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))

// What the library says of itself: insight.cc.
#define PACE_NCCL_INSIGHT(X)                                                 \
  X(22800, ncclResult_t, ncclGetVersion, (int* version), (version))          \
  X(22800, const char*, ncclGetErrorString, (ncclResult_t result), (result)) \
  X(22800, const char*, ncclGetLastError, (ncclComm_t comm), (comm))         \
  X(22800, void, ncclResetDebugInit, (), ())

// NCCL's own business with a communicator, by all its ranks: windows, one-sided messages, the device API. forwarded.cc.
#define PACE_NCCL_FORWARDED(X)                                                                                        \
  X(22800, ncclResult_t, ncclCommWindowRegister,                                                                      \
    (ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window, int flags),                                   \
    (comm, buffer, bytes, window, flags))                                                                             \
  X(22800, ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))            \
  X(22900, ncclResult_t, ncclPutSignal,                                                                               \
    (const void* local, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset, int signal,  \
     int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream),                                          \
    (local, count, type, peer, window, offset, signal, context, flags, comm, stream))                                 \
  X(22900, ncclResult_t, ncclSignal,                                                                                  \
    (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream),                    \
    (peer, signal, context, flags, comm, stream))                                                                     \
  X(22900, ncclResult_t, ncclWaitSignal,                                                                              \
    (int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm, cudaStream_t stream), (count, signals, comm, stream)) \
  X(22800, ncclResult_t, ncclDevCommCreate,                                                                           \
    (ncclComm_t comm, const ncclDevCommRequirements_t* wanted, ncclDevComm_t* out), (comm, wanted, out))              \
  X(22800, ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t* device), (comm, device))

// What one rank alone asks NCCL about a communicator: forwarded.cc.
#define PACE_NCCL_QUESTIONS(X)                                                                                       \
  X(22900, ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void** out), (comm, window, out)) \
  X(22900, ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t * properties),              \
    (comm, properties))                                                                                              \
  X(22800, ncclTeam_t, ncclTeamLsa, (ncclComm_t comm), (comm))                                                       \
  X(22800, ncclTeam_t, ncclTeamRail, (ncclComm_t comm), (comm))                                                      \
  X(22800, int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank))               \
  X(22800, int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank))                 \
  X(22800, ncclResult_t, ncclGinBarrierCreateRequirement,                                                            \
    (ncclComm_t comm, ncclTeam_t team, int barriers, ncclGinBarrierHandle_t* out,                                    \
     ncclDevResourceRequirements_t* requirements),                                                                   \
    (comm, team, barriers, out, requirements))

// NCCL's own business without a communicator. forwarded.cc.
#define PACE_NCCL_PLAIN(X)                                                                                            \
  X(22800, ncclResult_t, ncclMemAlloc, (void** memory, size_t bytes), (memory, bytes))                                \
  X(22800, ncclResult_t, ncclMemFree, (void* memory), (memory))                                                       \
  X(22900, ncclResult_t, ncclGetLsaMultimemDevicePointer, (ncclWindow_t window, size_t offset, void** out),           \
    (window, offset, out))                                                                                            \
  X(22900, ncclResult_t, ncclGetMultimemDevicePointer,                                                                \
    (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** out), (window, offset, multimem, out)) \
  X(22900, ncclResult_t, ncclGetLsaDevicePointer, (ncclWindow_t window, size_t offset, int rank, void** out),         \
    (window, offset, rank, out))                                                                                      \
  X(22900, ncclResult_t, ncclGetPeerDevicePointer, (ncclWindow_t window, size_t offset, int peer, void** out),        \
    (window, offset, peer, out))                                                                                      \
  X(22800, ncclResult_t, ncclLsaBarrierCreateRequirement,                                                             \
    (ncclTeam_t team, int barriers, ncclLsaBarrierHandle_t* out, ncclDevResourceRequirements_t* requirements),        \
    (team, barriers, out, requirements))                                                                              \
  X(22800, int, ncclLLA2ACalcSlots, (int elements, int bytes), (elements, bytes))                                     \
  X(22800, ncclResult_t, ncclLLA2ACreateRequirement,                                                                  \
    (int blocks, int slots, ncclLLA2AHandle_t* out, ncclDevResourceRequirements_t* requirements),                     \
    (blocks, slots, out, requirements))                                                                               \
  X(22900, ncclResult_t, ncclGinOutboxCreateRequirement,                                                              \
    (int blocks, int size, ncclGinOutboxHandle* out, ncclDevResourceRequirements* requirements),                      \
    (blocks, size, out, requirements))                                                                                \
  X(22900, ncclResult_t, ncclGinInboxA2ACreateRequirement,                                                            \
    (ncclTeam_t peers, int blocks, int size, ncclGinInboxA2AHandle* out, ncclDevResourceRequirements* requirements),  \
    (peers, blocks, size, out, requirements))                                                                         \
  X(23000, ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char* key), (out, key))                       \
  X(23000, ncclResult_t, ncclParamGetI8, (ncclParamHandle_t handle, int8_t * out), (handle, out))                     \
  X(23000, ncclResult_t, ncclParamGetI16, (ncclParamHandle_t handle, int16_t * out), (handle, out))                   \
  X(23000, ncclResult_t, ncclParamGetI32, (ncclParamHandle_t handle, int32_t * out), (handle, out))                   \
  X(23000, ncclResult_t, ncclParamGetI64, (ncclParamHandle_t handle, int64_t * out), (handle, out))                   \
  X(23000, ncclResult_t, ncclParamGetU8, (ncclParamHandle_t handle, uint8_t * out), (handle, out))                    \
  X(23000, ncclResult_t, ncclParamGetU16, (ncclParamHandle_t handle, uint16_t * out), (handle, out))                  \
  X(23000, ncclResult_t, ncclParamGetU32, (ncclParamHandle_t handle, uint32_t * out), (handle, out))                  \
  X(23000, ncclResult_t, ncclParamGetU64, (ncclParamHandle_t handle, uint64_t * out), (handle, out))                  \
  X(23000, ncclResult_t, ncclParamGetStr, (ncclParamHandle_t handle, const char** out), (handle, out))                \
  X(23000, ncclResult_t, ncclParamGet, (ncclParamHandle_t handle, void* out, int most, int* length),                  \
    (handle, out, most, length))                                                                                      \
  X(23000, ncclResult_t, ncclParamGetParameter, (const char* key, const char** value, int* length),                   \
    (key, value, length))                                                                                             \
  X(23000, ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* length), (table, length))           \
  X(23000, void, ncclParamDumpAll, (), ())

#define PACE_NCCL_FUNCTIONS(X) \
  PACE_NCCL_CALLS(X)           \
  PACE_NCCL_GROUPS(X)          \
  PACE_NCCL_BIRTHS(X)          \
  PACE_NCCL_LIFE(X)            \
  PACE_NCCL_INSIGHT(X) PACE_NCCL_FORWARDED(X) PACE_NCCL_QUESTIONS(X) PACE_NCCL_PLAIN(X)

#define PACE_NCCL_DECLARE(since, result, name, parameters, arguments) \
  extern "C" __attribute__((visibility("default"))) result name parameters;
PACE_NCCL_FUNCTIONS(PACE_NCCL_DECLARE)
#undef PACE_NCCL_DECLARE

// At the end of the file that defines a list's functions: their twins for profilers.
#define PACE_NCCL_TWIN(since, result, name, parameters, arguments) \
  extern "C" __attribute__((visibility("default"), alias(#name))) result p##name parameters;
