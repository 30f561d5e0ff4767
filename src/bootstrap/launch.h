// Who am I? Rank, size, address and secret, from the environment that a launcher has set.
//
//   launcher             rank, size                                  address and port
//   PACELINE_RANK/SIZE   given, or by `paceline run`                 PACELINE_ADDRESS=host:port
//   torchrun             RANK, WORLD_SIZE                            MASTER_ADDR, MASTER_PORT + 1 (or PACELINE_ADDRESS)
//   Open MPI             OMPI_COMM_WORLD_RANK/SIZE                   PACELINE_ADDRESS, or one node: see below
//   MPICH, Intel MPI     PMI_RANK/PMI_SIZE (also MPI_LOCALNRANKS)    PACELINE_ADDRESS, or one node: see below
//   srun                 SLURM_PROCID, SLURM_STEP_NUM_TASKS          first host of SLURM_STEP_NODELIST, port by job id
//
// The secret comes from PACELINE_SECRET or the file PACELINE_SECRET_FILE (mode 0600). Where neither is set and all
// ranks are on this node, the ranks meet through a file of mode 0600 in a directory of mode 0700 that belongs to this
// user (XDG_RUNTIME_DIR, else /tmp/paceline-UID), named for the launcher's job: rank 0 writes address, port and a new
// secret there and removes it when all have come.
#pragma once

#include "base/configuration.h"
#include "base/status.h"
#include "bootstrap/launcher.h"
#include "bootstrap/session.h"

namespace paceline {

// Errors: a variable missing or not a number (named), a secret missing where several nodes take part (with the way to
// make one), an address missing. No launcher at all: a rendezvous of size 1. `timeout`: seconds for all to come.
Result<Rendezvous> rendezvous_from_environment(double timeout);
// The same with variables that are given.
Result<Rendezvous> rendezvous_from(const Configuration& configuration, const Environment& environment, double timeout);

// paceGetUniqueId: listen now on the interface of PACELINE_INTERFACE (a name, an address or a CIDR; default: loopback),
// make a secret, and pack address, ports and secret into 128 bytes. Until rank 0 has joined, in this process or
// another, a signpost stays here (signpost.h).
Result<Bytes> make_unique_id();
// Takes down the signposts of ids that no rank 0 has joined by, and says how many (for tests).
int forget_unused_ids();
// Takes the id apart; of rank 0, the others come to `listener`. Errors: nobody answers where the id was made.
Result<Rendezvous> rendezvous_from_unique_id(std::span<const std::byte> id, int rank, int size, double timeout);

}  // namespace paceline
