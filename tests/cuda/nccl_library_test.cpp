// Which libnccl is taken. The one of these tests lacks all of NCCL's calls, so that errors tell which it was.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/nccl/nccl_library.hpp"
#include "weft/error.hpp"

namespace weft::nccl {
namespace {

std::string why_refused(Config const& config) {
  try {
    static_cast<void>(NcclLibrary::open(config));
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return "it was taken";
}

TEST(NcclLibrary, IsTheOneThatTheProcessHasLoadedWhereverItLies) {
  ASSERT_NE(::dlopen(WEFT_EMPTY_NCCL, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  EXPECT_NE(why_refused({}).find(WEFT_EMPTY_NCCL " is NCCL 0.0.0, which lacks ncclGetVersion"), std::string::npos)
      << why_refused({});
}

TEST(NcclLibrary, TellsWhatIsMissing) {
  Config config;
  config.nccl_library = "/nowhere/libnccl.so.2";
  auto const why = why_refused(config);
  EXPECT_NE(why.find("/nowhere/libnccl.so.2"), std::string::npos) << why;
  EXPECT_NE(why.find("WEFT_NCCL_LIBRARY"), std::string::npos) << why;
}

}  // namespace
}  // namespace weft::nccl
