// A libnccl.so.2 without anything in it.
