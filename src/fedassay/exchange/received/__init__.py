"""What a client can check of what a server sent it: is it what it is said to be, and is it a trap?"""
