! Fortran's entry points: mpi_, with MPI_IN_PLACE and MPI_BOTTOM, which are addresses of common blocks.
program reductions
  use mpi
  implicit none
  integer :: ierr, rank, ranks, i
  integer :: values(4), all(64), counts(16), offsets(16)
  double precision :: x(60)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  values = rank + [1, 2, 3, 4]
  call MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  print '(a,i0,4i6,i3)', 'allreduce ', rank, values, ierr
  x = 0.5d0 * rank
  call MPI_Bcast(x, 60, MPI_DOUBLE_PRECISION, ranks - 1, MPI_COMM_WORLD, ierr)
  print '(a,i0,3f6.2)', 'bcast ', rank, x(1), x(30), x(60)
  all = -1
  do i = 1, ranks
    counts(i) = i
    offsets(i) = (i * (i - 1)) / 2
  end do
  values = rank
  call MPI_Allgatherv(values, rank + 1, MPI_INTEGER, all, counts, offsets, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  print '(a,i0,10i3)', 'allgatherv ', rank, all(1:10)
  all = rank
  call MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  print '(a,i0,4i3)', 'alltoall ', rank, all(1:ranks)
  all = -1
  call MPI_Gather(values, 1, MPI_INTEGER, all, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  print '(a,i0,4i3)', 'gather ', rank, all(1:ranks)
  call MPI_Scan(rank + 1, values, 1, MPI_INTEGER, MPI_PROD, MPI_COMM_WORLD, ierr)
  print '(a,i0,i6)', 'scan ', rank, values(1)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
end program
