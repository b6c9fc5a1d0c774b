"""PACKAGE DOC penstock.http"""
