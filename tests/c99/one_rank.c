/* The public header and library as a C99 program meets them: a communicator of one rank. */
#include <stdio.h>
#include <string.h>

#include "paceline/paceline.h"

static int failed(paceResult_t result, const char* call) {
  if (result == paceSuccess) return 0;
  fprintf(stderr, "%s: %s: %s\n", call, paceGetErrorString(result), paceGetLastError(NULL));
  return 1;
}

int main(void) {
  int version = 0;
  if (failed(paceGetVersion(&version), "paceGetVersion")) return 1;
  if (version != PACE_VERSION) {
    fprintf(stderr, "the library is version %d, the header %d\n", version, PACE_VERSION);
    return 1;
  }

  paceUniqueId id;
  paceComm_t comm = NULL;
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.timeoutSeconds = 10;
  if (failed(paceGetUniqueId(&id), "paceGetUniqueId")) return 1;
  if (failed(paceCommInitRankConfig(&comm, 1, id, 0, &config), "paceCommInitRankConfig")) return 1;

  const float send[3] = {1, 2, 3};
  float recv[3] = {0, 0, 0};
  if (failed(paceAllReduce(send, recv, 3, paceFloat32, paceSum, comm, NULL), "paceAllReduce")) return 1;
  if (memcmp(send, recv, sizeof(send)) != 0) {
    fprintf(stderr, "an all-reduce of one rank changed the data\n");
    return 1;
  }
  if (failed(paceCommDestroy(comm), "paceCommDestroy")) return 1;

  const char* build = paceDescribe("build");
  if (build == NULL || strstr(build, "\"version\"") == NULL) {
    fprintf(stderr, "paceDescribe(\"build\") does not tell the version\n");
    return 1;
  }
  return 0;
}
