#!/bin/sh
# On every host, with its own number as the argument (0, 1, 2, 3); process 0 listens on the port.
exec geodax fit network contacts.csv --num-chains 32 --out /shared/runs/contacts \
    --coordinator node0.example.org:12345 --num-processes 4 --process-id "$1"
