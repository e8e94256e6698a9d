#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "halotap/io/realtime.hpp"
#include "live/fake_device.hpp"
#include "realtime/thread_name.hpp"

namespace halotap::io {
namespace {

std::int64_t count_of(const std::string& name) {
  std::int64_t count = 0;
  for (const ThreadInfo& thread : threads()) count += thread.name == name ? 1 : 0;
  return count;
}

TEST(Threads, AreFoundByTheNamesTheyHave) {
  const auto device = std::make_shared<FakeDevice>();
  {
    const DeviceKeeper keeper(fake_keeper(device));
    EXPECT_TRUE(comes_true([] { return count_of("halotap-keeper") == 1; })) << "one of an earlier test may be ending";
    EXPECT_EQ(count_of("halotap-device"), 1) << "which calls back";
    EXPECT_GT(threads().at(0).id, 0);
  }
  EXPECT_TRUE(comes_true([] { return count_of("halotap-keeper") == 0; }));
}

TEST(Threads, GiveABorrowedNameBack) {
  std::thread([] {
    name_this_thread("somebody-else");
    {
      const BorrowedThreadName name("halotap-session");
      EXPECT_EQ(count_of("halotap-session"), 1);
    }
    EXPECT_EQ(count_of("halotap-session"), 0);
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof(name));
    EXPECT_STREQ(name, "somebody-else");
  }).join();
}

}  // namespace
}  // namespace halotap::io
