"""What a CI job reads: policies, verdicts on them, SARIF and JUnit."""
