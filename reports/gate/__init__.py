"""Gates for CI jobs: policies, verdicts on them, SARIF and JUnit."""
