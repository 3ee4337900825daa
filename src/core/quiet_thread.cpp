#include "core/quiet_thread.hpp"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace weft {

std::thread start_quietly(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace weft
