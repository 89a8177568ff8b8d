// check_certificate < FILE: prints a line for each finding and exits with status 1, or prints one
// line and exits with 0.
#include <iostream>
#include <iterator>

#include "check.h"

int main() {
  std::string text((std::istreambuf_iterator<char>(std::cin)), {});
  std::vector<std::string> findings = certificate::check(text);
  for (const std::string& finding : findings) std::cout << finding << "\n";
  if (findings.empty()) std::cout << "certificate: ok\n";
  return findings.empty() ? 0 : 1;
}
