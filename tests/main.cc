#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "bootstrap/launch.h"
#include "bootstrap/threads.h"

namespace {

// The next test may fork, beside which a sanitizer wants no other thread: those that a test has left, to end by
// themselves, are waited for. One that waits for the rank 0 of a unique id which nobody has used ends here.
struct WaitsForThreads : doctest::IReporter {
  explicit WaitsForThreads(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData&) override { threads_ = paceline::testing::living_threads(); }
  void test_case_end(const doctest::CurrentTestCaseStats&) override {
    (void)paceline::forget_unused_ids();
    (void)paceline::testing::threads_are_back_to(threads_, std::chrono::milliseconds(500));
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  int threads_ = 0;
};
REGISTER_LISTENER("waits for threads", 1, WaitsForThreads);

}  // namespace
