// MPI_Finalize, MPI_Comm_free, MPI_Comm_disconnect: in these MPI runs the program's delete callbacks, whose calls have
// to pass through on all ranks alike.
#include "preload/library.hpp"

using namespace weft::preload;

extern "C" {

int MPI_Finalize() {
  Library::stop();
  return PMPI_Finalize();
}

int MPI_Comm_free(MPI_Comm* communicator) {
  Freeing const now(communicator != nullptr ? *communicator : MPI_COMM_NULL);
  return PMPI_Comm_free(communicator);
}

int MPI_Comm_disconnect(MPI_Comm* communicator) {
  Freeing const now(communicator != nullptr ? *communicator : MPI_COMM_NULL);
  return PMPI_Comm_disconnect(communicator);
}

}  // extern "C"
