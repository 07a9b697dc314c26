from benchmarks.accuracy.accuracy import main

main()
