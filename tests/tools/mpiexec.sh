#!/bin/sh
# mpiexec.sh N PROGRAM [FLAGS]: starts N processes of a program. The variables are Open MPI's: they allow root, and more
# processes than there are cores, both of which MPICH allows by default.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
exec mpiexec -n "$@"
