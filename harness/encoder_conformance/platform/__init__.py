"""What any program needs: errors, files, interrupts, memory, and text that is fit to print."""
